"""Data and models from other libraries."""

from jaxbounds.interop.svmlight import load_svmlight

__all__ = ["load_svmlight"]
