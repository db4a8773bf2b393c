"""Data and models from other libraries."""

from jaxbounds.interop.sklearn import from_sklearn
from jaxbounds.interop.svmlight import load_svmlight

__all__ = ["from_sklearn", "load_svmlight"]
