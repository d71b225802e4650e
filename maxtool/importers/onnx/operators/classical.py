"""Operators for classical models that work on the columns of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import CLASSICAL, operator
from maxtool.importers.onnx.operators.tree_ensembles import class_labels, labelled, transformed
from maxtool.importers.onnx.refusals import require
from maxtool.importers.onnx.values import known


@operator("Binarizer", domain=CLASSICAL)
def binarizer(call: OperatorCall) -> Tensor:
    """Return 1 for what is above a threshold, and 0 for the rest."""
    x = call.x()
    return ops.cast(ops.greater(x, ops.cast(call.real("threshold", 0.0), x.dtype)), x.dtype)


@operator("ArrayFeatureExtractor", domain=CLASSICAL)
def array_feature_extractor(call: OperatorCall) -> Tensor:
    """Columns by their numbers; one dimension is a row."""
    x, places = call.x(0), call.x(1)
    found = ops.gather(x, ops.reshape(places, [places.shape.volume()]), x.rank - 1)
    return found if x.rank > 1 else ops.unsqueeze(found, 0)


@operator("Scaler", domain=CLASSICAL)
def scaler(call: OperatorCall) -> Tensor:
    """Return ``(x - offset) * scale``, float32, each one number or one for each column."""
    x = ops.cast(call.x(), DType.float32)
    offset, scale = (np.array(call.attribute(name), np.float32) for name in ("offset", "scale"))
    return (x - _for_columns(x, offset)) * _for_columns(x, scale)


def _for_columns(x: Tensor, numbers: NDArray[Any]) -> Tensor:
    fits = len(numbers) == 1 or x.shape[-1] == len(numbers) or not x.shape[-1].is_static
    require(fits, f"it has {len(numbers)} numbers for {x.shape[-1]} columns")
    return known(numbers)


@operator("Normalizer", domain=CLASSICAL)
def normalizer(call: OperatorCall) -> Tensor:
    """Rows divided by their largest element, the sum of their sizes, or their length, unless 0."""
    x, norm = ops.cast(call.x(), DType.float32), call.text("norm", "MAX")
    norms = {
        "MAX": lambda: ops.max(x, axis=-1),
        "L1": lambda: ops.sum(ops.abs(x), -1),
        "L2": lambda: ops.sqrt(ops.sum(x * x, -1)),
    }
    require(norm in norms, f"there is no norm {norm!r}")
    divisor = norms[norm]()
    return x / ops.where(ops.equal(divisor, 0.0), 1.0, divisor)


@operator("Imputer", domain=CLASSICAL)
def imputer(call: OperatorCall) -> Tensor:
    """Elements of one value replaced by others, by one for all or one for each column."""
    x = call.x()
    if x.dtype.is_float():
        missing, others = call.real("replaced_value_float", 0.0), "imputed_value_floats"
    else:
        missing, others = call.number("replaced_value_int64", 0), "imputed_value_int64s"
    values = np.array(call.attribute(others), x.dtype.to_numpy())
    is_it = ops.is_nan(x) if missing != missing else ops.equal(x, missing)
    return ops.where(is_it, ops.broadcast_to(_for_columns(x, values), x.shape), x)


@operator("LinearRegressor", domain=CLASSICAL)
def linear_regressor(call: OperatorCall) -> Tensor:
    """Products of rows with the coefficients of each target, and what is added to them."""
    found = _linear(call, call.number("targets", 1))
    return transformed(found, call.text("post_transform", "NONE"))


@operator("LinearClassifier", domain=CLASSICAL)
def linear_classifier(call: OperatorCall) -> list[Tensor]:
    """The best of some classes by such products, and the scores of all."""
    labels = class_labels(call, "classlabels_ints")
    found = _linear(call, len(labels))
    scores = transformed(found, call.text("post_transform", "NONE"))
    return [labelled(found, labels), scores]


def _linear(call: OperatorCall, targets: int) -> Tensor:
    x = ops.cast(call.x(), DType.float32)
    x = x if x.rank == 2 else ops.reshape(x, [1, x.shape.volume()])
    flat = np.array(call.attribute("coefficients"), np.float32)
    whole = targets > 0 and len(flat) > 0 and len(flat) % targets == 0
    require(whole, f"it has {len(flat)} coefficients for {targets} results")
    columns = len(flat) // targets
    fits = x.shape[1] == columns or not x.shape[1].is_static
    require(fits, f"it has coefficients for {columns} columns, not {x.shape[1]}")
    found = ops.matmul(x, known(np.ascontiguousarray(flat.reshape(targets, -1).T)))
    if intercepts := call.attributes.get("intercepts"):
        require(len(intercepts) == targets, f"{len(intercepts)} intercepts for {targets} results")
        found = found + known(np.array(intercepts, np.float32))
    return found
