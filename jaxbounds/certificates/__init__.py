"""Certificates: sets that must contain the new optimum, cheapest first."""

from jaxbounds.certificates.ball import Ball
from jaxbounds.certificates.cached import Cached
from jaxbounds.certificates.curvature import Curvature
from jaxbounds.certificates.factor import with_factor
from jaxbounds.certificates.newton_pass import Pass
from jaxbounds.certificates.partial import Partial
from jaxbounds.certificates.region import Method, Region
from jaxbounds.certificates.self_concordant import SelfConcordant
from jaxbounds.certificates.theorem1 import Theorem1

__all__ = [
    "Ball", "Cached", "Curvature", "Method", "Partial", "Pass", "Region", "SelfConcordant", "Theorem1", "with_factor",
]  # fmt: skip
