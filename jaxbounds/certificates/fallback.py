"""Which method it was that answered: where a method's own regions say nothing, those of a weaker one are left."""

import numpy as np

from jaxbounds.array import xp
from jaxbounds.certificates.ball import Ball
from jaxbounds.certificates.curvature import Curvature
from jaxbounds.certificates.ellipsoid import Ellipsoid
from jaxbounds.certificates.newton_pass import Pass
from jaxbounds.certificates.partial import Partial
from jaxbounds.certificates.region import Method
from jaxbounds.certificates.self_concordant import SelfConcordant
from jaxbounds.problem import Problem

FALLBACKS = ("", "Cached", "Partial")  # by the number that `fallback` gives


def fallback(method: Method, problem: Problem, parts):
    """int32, an index into FALLBACKS: 0 where the method's own regions say something (one number a candidate)."""
    edit, regions = parts[-1]
    nothing = np.zeros(np.shape(edit.valid), np.int32)
    if not isinstance(method, Partial | Pass | SelfConcordant | Curvature):
        return nothing
    # with an intercept all regions are ellipsoids, and Cached and Partial find one each
    balls = list(regions[:2]) if problem.intercept else [region for region in regions if isinstance(region, Ball)]
    cached = 1 if problem.intercept or problem.loss.smoothness is None else 2
    more = _says_more(balls[:cached], balls[cached:], nothing)
    if isinstance(method, Partial):
        return xp.where(more, nothing, nothing + 1)
    own = nothing > 0
    for region in regions[len(balls) :]:
        assert isinstance(region, Ellipsoid)
        own = own | (xp.isfinite(region.radius) & xp.isfinite(region.pad))
    return xp.where(own, nothing, xp.where(more, nothing + 2, nothing + 1))


def _says_more(weaker, regions, nothing):
    """Whether one of the regions is none of the weaker ones."""
    more = nothing > 0
    for region in regions:
        new = nothing == 0
        for old in weaker:
            new = new & ((region.radius != old.radius) | (region.gap != old.gap))
        more = more | new
    return more
