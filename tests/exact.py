"""The certificates of theory section 4 in 60 digits, for the exact values of given floats (mpmath; small problems).

Every gap is evaluated as P - D, term by term from the definitions, never by the library's cancellation-free formulas.
A problem is any object with loss, param, penalty, lam, l1, kappa, q, X, y, c (tests/oracle.py has one).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

DIGITS = 60
MP: Any = mpmath.MPContext()
MP.dps = DIGITS
INF = MP.inf
MARGIN_LOSSES = ("smoothed_hinge", "hinge", "squared_hinge", "logistic")


def number(x) -> Any:
    """One exact value: float, NumPy scalar, int, Fraction or mpf."""
    if isinstance(x, Fraction):
        return MP.mpf(x.numerator) / x.denominator
    if hasattr(x, "_mpf_"):
        return MP.make_mpf(x._mpf_)
    return MP.mpf(int(x)) if isinstance(x, int | np.integer) else MP.mpf(float(x))


def array(x, size: int | None = None) -> np.ndarray:
    """An object array of exact values; a scalar becomes a vector of the given size."""
    x = np.asarray(x)
    if size is not None and x.ndim == 0:
        x = np.full(size, x[()], dtype=object)
    out = np.empty(x.shape, object)
    for i in np.ndindex(x.shape):
        out[i] = number(x[i])
    return out


def weights(sample_weight, divisor: int = 1) -> np.ndarray:
    """c_i = sample_weight_i/divisor without rounding the quotient to float64 (divisor = n for "mean")."""
    return array(sample_weight) / number(divisor)


def root(x):
    """Square root of a number that is >= 0 up to the last digits."""
    return MP.sqrt(max(x, MP.zero))


def norm(x: np.ndarray):
    return root(sum((z * z for z in x), MP.zero))


# ---------------------------------------------------------------- definitions


def coordinate(loss: str, s, y) -> np.ndarray:
    return y * s if loss in MARGIN_LOSSES else s - y


def gamma_of(loss: str, p):
    """The loss's gamma (1 over its smoothness), 0 for the hinge."""
    return {"smoothed_hinge": p, "hinge": MP.zero, "logistic": MP.mpf(4)}.get(loss, MP.one)


def domain(loss: str, p) -> tuple[Any, Any]:
    if loss == "huber":
        return -p, p
    return {"squared": (-INF, INF), "squared_hinge": (MP.zero, INF)}.get(loss, (MP.zero, MP.one))


def value(loss: str, p, q):
    """f(q)."""
    h = max(1 - q, MP.zero)
    if loss == "smoothed_hinge":
        return h * h / (2 * p) if h < p else h - p / 2
    if loss == "hinge":
        return h
    if loss == "squared_hinge":
        return h * h / 2
    if loss == "logistic":
        return MP.log1p(MP.exp(-q)) if q > 0 else -q + MP.log1p(MP.exp(q))
    return q * q / 2 if loss == "squared" or abs(q) <= p else p * abs(q) - p * p / 2


def dual(loss: str, p, q):
    """alpha = -f'(q); the hinge gives 0 at its kink."""
    if loss == "smoothed_hinge":
        return min(max((1 - q) / p, MP.zero), MP.one)
    if loss == "hinge":
        return MP.one if q < 1 else MP.zero
    if loss == "squared_hinge":
        return max(1 - q, MP.zero)
    if loss == "logistic":
        return 1 / (1 + MP.exp(q))
    return -q if loss == "squared" else -min(max(q, -p), p)


def conjugate(loss: str, p, alpha):
    """f*(-alpha), +inf outside the domain."""
    lo, hi = domain(loss, p)
    if alpha < lo or alpha > hi:
        return INF
    if loss == "logistic":
        return sum((z * MP.log(z) for z in (alpha, 1 - alpha) if z > 0), MP.zero)
    if loss in ("squared", "huber"):
        return alpha * alpha / 2
    return gamma_of(loss, p) * alpha * alpha / 2 - alpha


def fenchel_young(loss: str, p, q, alpha):
    """f(q) + f*(-alpha) + alpha q for single numbers."""
    p = None if p is None else number(p)
    q, alpha = number(q), number(alpha)
    return value(loss, p, q) + conjugate(loss, p, alpha) + alpha * q


def penalty_terms(penalty: str, w, v, lam, l1, kappa, q):
    """(psi_j(w) + psi*_j(v) - w v, u_j); u_j is None for L1."""
    if penalty == "l1":
        return (kappa * abs(w) - w * v if abs(v) <= kappa else INF), None
    if penalty == "lq":
        a, r = abs(v) / lam, q / (q - 1)
        size, mass = (MP.zero, MP.zero) if a == 0 else (a ** (1 / (q - 1)), a**r)
        power = MP.zero if w == 0 else abs(w) ** q
        return lam / q * power + lam / r * mass - w * v, MP.sign(v) * size
    z = max(abs(v) - l1, MP.zero)
    return lam / 2 * w * w + l1 * abs(w) + z * z / (2 * lam) - w * v, MP.sign(v) * z / lam


# ---------------------------------------------------------------- certificates


@dataclass(frozen=True, eq=False)
class Exact:
    """All scalars of one pair (w, alpha); lam is (d,) or None (no property B), gamma = 0 without property A."""

    X: np.ndarray
    c: np.ndarray
    orientation: np.ndarray
    penalty: str
    alpha_domain: tuple[Any, Any]
    gamma: Any
    lam: Any
    w: np.ndarray
    alpha: np.ndarray
    a: np.ndarray  # alpha that w suggests
    v: np.ndarray
    u: Any  # w that v suggests; None for L1
    fy: np.ndarray
    columns: np.ndarray
    F: Any
    B: Any
    G: Any

    @property
    def moved(self):
        """||w - u||_2."""
        return norm(self.w - self.u)

    @property
    def moved_lam(self):
        """sum_j lam_j (w_j - u_j)^2; 0 without property B."""
        return MP.zero if self.lam is None else sum(self.lam * (self.w - self.u) ** 2, MP.zero)

    @property
    def dual_moved(self):
        """||t - a||_C."""
        return root(sum(self.c * (self.alpha - self.a) ** 2, MP.zero))

    @property
    def G_mid(self):
        """G' = G - sum lam_j (w_j-u_j)^2/4 - gamma/4 ||t-a||_C^2."""
        return self.G - self.moved_lam / 4 - self.gamma * self.dual_moved**2 / 4

    @property
    def centre(self) -> np.ndarray:
        return (self.w + self.u) / 2

    @property
    def R_lam(self):
        """Mid ball in the norm sqrt(sum_j lam_j z_j^2)."""
        return root(self.G_mid)

    @property
    def R(self):
        """Mid ball (4.2) in the Euclidean norm; the smallest lam_j decides for a vector lam."""
        return root(self.G_mid / min(self.lam))

    @property
    def R_C(self):
        """Dual mid ball around (t+a)/2 in ||.||_C."""
        return root(self.G_mid / self.gamma) if self.gamma > 0 else INF

    @property
    def r_P(self):
        """Theorem 1: ||w - w*||_2."""
        return root(2 * self.G / min(self.lam))

    @property
    def r_D(self) -> np.ndarray:
        """Theorem 1: |alpha_i - alpha*_i|."""
        return np.array([root(2 * self.G / (self.gamma * c)) if self.gamma * c > 0 else INF for c in self.c])

    def distance(self, w):
        """||centre - w||_2."""
        return norm(self.centre - array(w))

    def distance_bounds(self, w):
        """[||c - w|| - R, ||c - w|| + R] for the Euclidean mid ball."""
        return max(self.distance(w) - self.R, MP.zero), self.distance(w) + self.R

    def scores(self, x) -> tuple[Any, Any]:
        """Interval of x.w* from the mid ball (in the lam norm, the tighter one for a vector lam)."""
        x = array(x)
        middle, half = x @ self.centre, self.R_lam * root(sum(x * x / self.lam, MP.zero))
        return middle - half, middle + half

    def dual_box(self) -> tuple[np.ndarray, np.ndarray]:
        """Interval of every alpha_i from the dual mid ball, cut with the domain."""
        half = np.array([self.R_C / MP.sqrt(c) if c > 0 else INF for c in self.c])
        middle, (lo, hi) = (self.alpha + self.a) / 2, self.alpha_domain
        return np.maximum(middle - half, lo), np.minimum(middle + half, hi)

    def v_domain(self) -> tuple[np.ndarray, np.ndarray]:
        """[inf, sup] of sum_i c_i t_i x_ij over the dual's domain (S-, S+ for alpha in [0, 1])."""
        lower, upper = array(np.zeros(self.v.size)), array(np.zeros(self.v.size))
        Z = (self.c * self.orientation)[:, None] * self.X
        for (_, j), z in np.ndenumerate(Z):
            if z != 0:
                ends = [z * b for b in self.alpha_domain]
                lower[j], upper[j] = lower[j] + min(ends), upper[j] + max(ends)
        return lower, upper

    def v_box(self) -> tuple[np.ndarray, np.ndarray]:
        """Theorem 1 (i): interval of every v*_j."""
        width = [root(2 * self.G / self.gamma) if self.gamma > 0 else INF] * self.v.size
        k = np.array([root(z) for z in self.column_sums()])
        half = np.array([b * r if b > 0 else MP.zero for b, r in zip(k, width, strict=True)])
        lo, hi = self.v_domain()
        return np.maximum(self.v - half, lo), np.minimum(self.v + half, hi)

    def column_sums(self) -> np.ndarray:
        """sum_i c_i x_ij^2."""
        return (self.c[:, None] * self.X**2).sum(axis=0)

    def boxes(self) -> tuple[np.ndarray, np.ndarray]:
        """Joint boxes (4.2; L2 only), cut with [S-, S+]/lam."""
        if self.penalty != "l2":
            raise ValueError("the joint boxes are stated for L2")
        lower, upper = self.v_domain()
        lower, upper = lower / self.lam, upper / self.lam
        sums, t = self.column_sums(), self.orientation * (self.alpha + self.a) / 2
        ubar, c = self.X.T @ (self.c * t) / self.lam, self.centre
        for j, s in enumerate(sums):
            if s == 0:
                lower[j] = upper[j] = MP.zero
                continue
            k = self.gamma * self.lam[j] / s
            middle = (c[j] + k * ubar[j]) / (1 + k)
            half = root(self.G_mid / (self.lam[j] * (1 + k)) - k * (c[j] - ubar[j]) ** 2 / (1 + k) ** 2)
            lower[j], upper[j] = max(middle - half, lower[j]), min(middle + half, upper[j])
        return lower, upper

    def shrink(self, sigma2) -> tuple[np.ndarray, Any]:
        """Smoothness shrink (4.2, scalar lam): (centre, R); rho' = 2 rho where t = a holds exactly."""
        lam = self.lam[0]
        if any(z != lam for z in self.lam):
            raise ValueError("the smoothness shrink is stated for a scalar lam")
        sigma2 = number(sigma2)
        if sigma2 == 0:
            return self.u, MP.zero
        rho = self.gamma * lam / sigma2 * (2 if all(self.alpha == self.a) else 1)
        R2 = 2 * self.G / (lam * (2 + rho)) - (1 + rho) * self.moved**2 / (2 + rho) ** 2
        return (self.w + (1 + rho) * self.u) / (2 + rho), root(R2)


def evaluate(pr, w, alpha=None, c=None) -> Exact:
    """The exact certificates at (w, alpha); alpha None: a(w) in 60 digits; c (e.g. weights(sw, n)) replaces pr.c."""
    X, y, w = array(pr.X), array(pr.y), array(w)
    n, d = X.shape
    weight = array(pr.c if c is None else c, n)
    p = None if pr.param is None else number(pr.param)
    q = coordinate(pr.loss, X @ w, y)
    a = np.array([dual(pr.loss, p, z) for z in q])
    t = a.copy() if alpha is None else array(alpha)
    orientation = y if pr.loss in MARGIN_LOSSES else array(np.ones(n))
    v = X.T @ (weight * orientation * t)
    fy = np.array([value(pr.loss, p, z) + conjugate(pr.loss, p, b) + b * z for z, b in zip(q, t, strict=True)])
    lam = None if pr.lam is None else array(pr.lam, d)
    l1 = array(pr.l1 if pr.penalty == "elastic_net" else 0.0, d)
    kappa = None if pr.kappa is None else array(pr.kappa, d)
    power = None if pr.q is None else number(pr.q)
    terms = [
        penalty_terms(pr.penalty, w[j], v[j], None if lam is None else lam[j], l1[j],
                      None if kappa is None else kappa[j], power)
        for j in range(d)
    ]  # fmt: skip
    columns, u = np.array([b for b, _ in terms]), np.array([z for _, z in terms])
    F, B = sum(weight * fy, MP.zero), sum(columns, MP.zero)
    strong = lam if pr.penalty in ("l2", "elastic_net") else None
    return Exact(
        X, weight, orientation, pr.penalty, domain(pr.loss, p), gamma_of(pr.loss, p), strong, w, t, a, v,
        None if pr.penalty == "l1" else u, fy, columns, F, B, F + B,
    )  # fmt: skip
