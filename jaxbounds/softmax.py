"""The softmax (multinomial logistic) loss of K classes: one score and one dual variable for each class."""

import numpy as np

from jaxbounds.arguments import as_whole
from jaxbounds.array import xp
from jaxbounds.conjugate import xlogx
from jaxbounds.pytree import in_float64, pytree, static


@pytree
class Softmax:
    """l(s, y) = log sum_k e^(s_k) - s_y for scores s in R^K. See `softmax`."""

    classes: int = static()
    name = "softmax"
    classification = False  # targets are class numbers, not -1 and +1
    smoothness = 0.5

    @in_float64
    def probabilities(self, s):
        """softmax(s): (n, K) from (n, K), each with a small relative error."""
        e = xp.exp(s - xp.max(s, axis=1)[:, None])
        return e / xp.sum(e, axis=1)[:, None]

    @in_float64
    def one_hot(self, y):
        """(n, K) with a 1 at the class of each row; none for a target that is no class."""
        return xp.where(y[:, None] == np.arange(float(self.classes))[None, :], 1.0, 0.0)

    @in_float64
    def value(self, s, y):
        """l(s_i, y_i): (n,) from scores (n, K) and classes (n,)."""
        s = s - xp.max(s, axis=1)[:, None]
        return xp.log(xp.sum(xp.exp(s), axis=1)) - xp.sum(self.one_hot(y) * s, axis=1)

    @in_float64
    def dual(self, s, y):
        """t = onehot(y) - softmax(s), the negative gradient: (n, K)."""
        return self.one_hot(y) - self.probabilities(s)

    @in_float64
    def conjugate(self, t, y):
        """l*(-t) = sum_k b_k log b_k with b = onehot(y) - t; +inf unless b is a probability vector (to 1e-12)."""
        b = self.one_hot(y) - t
        inside = xp.all(b >= -1e-12, axis=1) & (xp.abs(xp.sum(b, axis=1) - 1.0) <= 1e-12)
        return xp.where(inside, xp.sum(xlogx(xp.maximum(b, 0.0)), axis=1), xp.inf)


def softmax(classes: int) -> Softmax:
    """Softmax loss of multinomial logistic regression, l(s, y) = log sum_k e^(s_k) - s_y.

    A score s_k = w_k.x for each of K classes; targets are class numbers 0, ..., K - 1. 1/2-smooth; the dual variable
    of a row is the vector onehot(y) - softmax(s). With an L2 penalty `fit` gives a `MultinomialModel`, and `bound`
    certified class labels. All K classes have coefficients, as in scikit-learn.

    Args:
        classes: K, a whole number of at least 2.

    Returns:
        a loss, a pytree without leaves.

    Raises:
        TypeError, ValueError: classes is not a whole number of at least 2.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> X, y = np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)
        >>> model = jb.fit(jb.Problem(jb.losses.softmax(3), jb.penalties.l2(0.1)), X, y)
        >>> jb.bound(model, jb.remove_rows([1])).labels(np.eye(3)).tolist()
        [0, 1, 2]

    Source: Cox 1966; Boehning 1992 for the bound 1/2 on its Hessian.
    """
    return Softmax(as_whole(classes, "classes", 2))
