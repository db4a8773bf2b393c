"""The answer of an estimator to "what if the training data changed?": `WhatIf`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxbounds.bounds import Bounds, Interval
from jaxbounds.display import shown
from jaxbounds.messages import brief, few
from jaxbounds.status import Status


@dataclass(frozen=True, eq=False)
@shown
class WhatIf:
    """Guaranteed intervals for the estimator that `fit` would give on the changed data.

    Attributes:
        bounds: the `Bounds` of each binary model: one, or one a class if there are more than two.
        classes: the classes in the estimator's own labels, None for regression.
        names: the names of the columns, None if it was not fitted on a data frame.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> from jaxbounds.sklearn import BoundedClassifier
        >>> X, y = np.array([[2.0], [-1.0], [1.0], [-2.0]]), np.array(["yes", "no", "yes", "no"])
        >>> BoundedClassifier().fit(X, y).what_if(jb.set_targets([2], ["no"])).labels([[9.0], [-9.0]]).tolist()
        ['yes', 'no']
    """

    bounds: tuple[Bounds, ...]
    classes: Any = None
    names: tuple[str, ...] | None = None

    def scores(self, X: Any) -> Interval:
        """Interval for `decision_function` (or `predict`, for regression) of the rows of X: (m,), (m, K) for K > 2."""
        found: list[Any] = [bounds.scores(X) for bounds in self.bounds]
        if len(found) == 1:
            return found[0]
        ends = ([np.asarray(getattr(one, end)) for one in found] for end in ("lower", "upper"))
        return Interval(*(np.stack(columns, axis=1) for columns in ends))

    def labels(self, X: Any) -> np.ndarray:
        """Certified labels in the estimator's classes: (m,) objects, None where these bounds do not decide."""
        if self.classes is None:
            raise ValueError("a regressor has no labels; use scores")
        interval: Any = self.scores(X)
        low, high = np.asarray(interval.lower, np.float64), np.asarray(interval.upper, np.float64)
        if low.ndim == 1:
            winner = np.where(low > 0, 1, np.where(high < 0, 0, -1))
        else:
            others = np.where(np.eye(low.shape[1], dtype=bool)[None], -np.inf, high[:, None, :]).max(axis=2)
            wins = low > others
            winner = np.where(wins.any(axis=1), wins.argmax(axis=1), -1)
        classes = np.array([*np.asarray(self.classes).tolist(), None], object)
        return classes[winner]

    def decided(self, X: Any) -> np.ndarray:
        """Whether the label of each row of X is certain: (m,) bool."""
        return np.array([label is not None for label in self.labels(X)])

    def w(self, name: Any = None) -> Any:
        """Interval for the coefficients, or for that of a column by name or number; a tuple for K > 2 classes."""
        if isinstance(name, str):
            if self.names is None or name not in self.names:
                known = "none, for they have no names" if self.names is None else few(self.names)
                raise ValueError(f"{brief(name)} is not one of the columns; they are {known}")
            name = self.names.index(name)
        found = tuple(bounds.w(name) for bounds in self.bounds)
        return found[0] if len(found) == 1 else found

    @property
    def distance(self) -> Any:
        """Interval for ||w_new - w_old||_2: retrain when its upper end exceeds your tolerance; a tuple for K > 2."""
        found = tuple(bounds.distance for bounds in self.bounds)
        return found[0] if len(found) == 1 else found

    @property
    def gap(self) -> float:
        """Upper bound of the new duality gap, the largest of the models'."""
        return max(float(bounds.gap) for bounds in self.bounds)

    @property
    def status(self) -> Status:
        """The worst status of the models; its `advice` is a sentence."""
        return Status(max(int(bounds.status) for bounds in self.bounds))

    def plot_coefficients(self, ax: Any = None) -> Any:
        """Draw the interval of each coefficient, labelled with its column's name; returns the matplotlib axes."""
        if len(self.bounds) != 1:
            raise ValueError("there are several models; draw one of them, WhatIf((bounds,), names=...)")
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise ImportError("a figure needs matplotlib: pip install 'jaxbounds[plot]'") from error
            ax = plt.subplots(figsize=(7.0, 4.0), layout="constrained")[1]
        interval: Any = self.bounds[0].w()
        low, high = np.asarray(interval.lower, np.float64), np.asarray(interval.upper, np.float64)
        old = np.asarray(self.bounds[0].model.w, np.float64)
        place = np.arange(low.size)
        band: Any = {"color": "#5a92c6", "linewidth": 4, "capstyle": "round"}  # no width at all is then a dot
        ax.hlines(place, low, high, label="after the change, certain to be within", **band)
        ax.plot(old, place[: old.size], ".", color="#d95f02", markersize=4, label="before the change")
        names = self.bounds[0].model.names if self.names is None else self.names
        ax.set_yticks(place, [*names, *(str(j) for j in range(len(names), low.size))])
        ax.set_xlabel("coefficient")
        ax.legend(frameon=False, fontsize="small")
        return ax
