"""A progress bar for everything that takes a `callback`; tqdm is loaded when one is drawn (extra `progress`)."""

import math
from typing import Any


class Progress:
    """A callback that draws a bar; see `progress`."""

    def __init__(self, description: str | None, options: dict[str, Any]):
        try:
            from tqdm import tqdm
        except ImportError as error:
            raise ImportError("a progress bar needs tqdm: pip install 'jaxbounds[progress]'") from error
        self._make, self._description, self._options = tqdm, description, options
        self._bar: Any = None
        self._kind: Any = None
        self._first = 1.0  # relative gap at the start of a fit

    def __call__(self, news: dict) -> None:
        """Draw what the news say; never asks to stop."""
        if "gap" in news and "tol" in news:
            self._fit(news)
        elif "done" in news and "total" in news:
            self._count(news.get("method"), int(news["done"]), int(news["total"]))
        else:
            told = ", ".join(f"{key} {value:.3g}" for key, value in news.items() if isinstance(value, float))
            done = int(news.get("n_trained", news.get("step", 0)))
            self._draw("", done, None, told)

    def _fit(self, news: dict) -> None:
        """Digits of the duality gap that are gained, of those that tol asks for."""
        tol = float(news["tol"])
        relative = max(float(news["gap"]) / max(abs(float(news["primal"])), 1e-300), 1e-300)
        if self._bar is None or self._kind != ("fit", tol):
            self._first = relative
        digits = max(math.log10(self._first / tol), 0.0)
        done = min(max(math.log10(self._first / relative), 0.0), digits)
        self._draw(("fit", tol), round(100 * done / digits) if digits else 100, 100, f"gap {relative:.1e}")
        if relative <= tol:
            self.close()

    def _count(self, method: Any, done: int, total: int) -> None:
        self._draw((method, total), done, total, str(method or ""))
        if done >= total:
            self.close()

    def _draw(self, kind: Any, done: int, total: int | None, told: str) -> None:
        if self._bar is None or kind != self._kind or done < self._bar.n:
            self.close()
            self._bar, self._kind = self._make(total=total, desc=self._description, **self._options), kind
        self._bar.set_postfix_str(told, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Finish the bar; the next news begin another."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *problem: Any) -> None:
        self.close()


def progress(description: str | None = None, **options: Any) -> Progress:
    """A ready `callback` that draws a tqdm bar, for everything that takes one.

    Those are `fit`, `fit_path`, `bound_each`, `leave_one_out`, `cross_validate`, `find_label_errors`, `best_penalty`.

    A fit shows how many of the digits that `tol` asks of the duality gap it has gained, a sweep how much of it is done.
    One bar serves any number of calls; as a context manager it is closed where a call stopped early.

    Args:
        description: in front of the bar. options: of `tqdm.tqdm`, like leave=False, disable=None or file=...

    Returns:
        a function of the dict that every `callback` gets.

    Raises:
        ImportError: tqdm is not installed.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
        >>> with jb.progress("training", disable=True) as bar:
        ...     model = jb.fit(problem, np.eye(2), np.array([1.0, -1.0]), callback=bar)
        >>> model.status.item()
        0
    """
    return Progress(description, options)
