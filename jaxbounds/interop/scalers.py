"""The fitted first steps of a scikit-learn pipeline as arithmetic on columns."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxbounds.messages import brief

Steps = list[tuple[str, np.ndarray]]

_SUPPORTED = "StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler"
_WHY = {
    "PCA": "it mixes the columns",
    "TruncatedSVD": "it mixes the columns",
    "PolynomialFeatures": "it makes new columns of several old ones",
    "SplineTransformer": "it makes new columns",
    "OneHotEncoder": "it makes new columns",
    "OrdinalEncoder": "its columns are categories",
    "ColumnTransformer": "it treats columns differently and orders them anew",
    "FeatureUnion": "it orders the columns anew",
    "Normalizer": "it divides a row by its own length, so that one element changes the whole row",
    "QuantileTransformer": "it is not affine",
    "PowerTransformer": "it is not affine",
    "KBinsDiscretizer": "it is not affine",
    "Binarizer": "it is not affine",
    "SimpleImputer": "it has a value for missing entries, which data here may not have",
    "SelectKBest": "it drops columns",
    "VarianceThreshold": "it drops columns",
    "TfidfVectorizer": "its rows are texts",
    "CountVectorizer": "its rows are texts",
    "TfidfTransformer": "it divides a row by its own length, so that one element changes the whole row",
}


def _standard(scaler: Any) -> Steps:
    shift = [("subtract", scaler.mean_)] if scaler.with_mean else []
    return shift + ([("divide", scaler.scale_)] if scaler.with_std else [])


def _min_max(scaler: Any) -> Steps:
    if scaler.clip:
        raise ValueError("MinMaxScaler(clip=True) cuts values off, which is not affine; use clip=False")
    return [("multiply", scaler.scale_), ("add", scaler.min_)]


def _max_abs(scaler: Any) -> Steps:
    if getattr(scaler, "clip", False):  # since scikit-learn 1.8
        raise ValueError("MaxAbsScaler(clip=True) cuts values off, which is not affine; use clip=False")
    return [("divide", scaler.scale_)]


def _robust(scaler: Any) -> Steps:
    shift = [("subtract", scaler.center_)] if scaler.with_centering else []
    return shift + ([("divide", scaler.scale_)] if scaler.with_scaling else [])


def _function(transformer: Any) -> Steps:
    if transformer.func is None:
        return []
    raise ValueError("FunctionTransformer has a function of its own, which need not be affine; transform X yourself")


_SCALERS: dict[str, Callable[[Any], Steps]] = {
    "StandardScaler": _standard,
    "MinMaxScaler": _min_max,
    "MaxAbsScaler": _max_abs,
    "RobustScaler": _robust,
    "FunctionTransformer": _function,
}


def scaling(transformers: list[tuple[str, Any]]) -> Steps:
    """What the fitted transformers do to each column, step by step; raises by name where it is not affine."""
    steps: Steps = []
    for step, transformer in transformers:
        if transformer is None or transformer == "passthrough":
            continue
        kind = type(transformer)
        translate = _SCALERS.get(kind.__name__) if kind.__module__.startswith("sklearn.") else None
        if translate is None:
            why = _WHY.get(kind.__name__, "it is not known here")
            raise ValueError(
                f"estimator: the step {brief(step)} of the pipeline is a {kind.__name__}, through which changes cannot "
                f"be followed: {why}; supported are {_SUPPORTED}. Transform X with the first steps, "
                "pipeline[:-1].transform(X), and pass the last one, pipeline[-1]; changes are then of transformed data"
            )
        if not hasattr(transformer, "n_features_in_") and kind.__name__ != "FunctionTransformer":
            raise ValueError(f"estimator: the step {brief(step)} of this Pipeline is not fitted; call fit(X, y) first")
        steps += translate(transformer)
    return [(name, np.asarray(vector, np.float64)) for name, vector in steps]
