"""Conjugate gradients for the steps that certificates take; any end point is valid."""

import numpy as np

from jaxbounds.array import fori_loop, ratio, xp

_CONVERGED = 1e-30  # of a squared residual relative to the first; beyond, quotients of roundings have wild derivatives


def conjugate_gradients(times, b, steps: int, jacobi=1.0, total=xp.sum, spread=lambda x: x):
    """An approximate solution x of times(x) = b, preconditioned by a diagonal.

    Several systems go side by side where `total` sums over the entries of each and `spread` hands its number back.
    """

    def step(_, state):
        x, r, direction, rz = state
        image = times(direction)
        curvature = total(direction * image)
        going = (curvature > 0) & (rz > _CONVERGED * first)
        size = spread(ratio(rz, curvature, going))
        x, r = x + size * direction, r - size * image
        z = jacobi * r
        new = total(r * z)
        return x, r, z + spread(ratio(new, rz, going)) * direction, new

    def done(_, state):
        return np.all(state[3] <= _CONVERGED * first)

    z = jacobi * b
    first = total(b * z)
    return fori_loop(0, steps, step, (xp.zeros_like(b), b, z, first), done)[0]
