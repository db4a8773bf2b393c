"""Certificates: sets that must contain the new optimum, cheapest first."""

from jaxbounds.certificates.cached import Cached
from jaxbounds.certificates.partial import Partial
from jaxbounds.certificates.region import Method, Region
from jaxbounds.certificates.theorem1 import Theorem1

__all__ = ["Cached", "Method", "Partial", "Region", "Theorem1"]
