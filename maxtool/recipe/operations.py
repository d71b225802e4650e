"""The closed table of operations a recipe may use, each with its exact inverse.

Most operations map every array by itself, ``concat`` and ``stack`` join several, ``split`` and
``unstack`` part one. Shapes follow from headers alone, so that a plan needs no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, ModelMismatch
from maxtool.quantization import QuantizationEncoding
from maxtool.recipe import joins
from maxtool.recipe.step import Array, Operation, Params, Shape, Step

# --- moving elements -----------------------------------------------------------------------------


def _transpose(array: Array, params: Params) -> Array:
    return array.transpose(params["axes"])


def _transpose_shape(shape: Shape, params: Params) -> Shape:
    axes = params["axes"]
    if len(axes) != len(shape):
        raise MisshapenWeight(f"transpose with axes {list(axes)} does not fit {shape}")
    return tuple(shape[axis] for axis in axes)


def _reshape(array: Array, params: Params) -> Array:
    return array.reshape(params["shape"])


def _reshape_shape(shape: Shape, params: Params) -> Shape:
    stored, wanted = tuple(params["stored"]), tuple(params["shape"])
    if shape != stored or math.prod(stored) != math.prod(wanted):
        raise MisshapenWeight(f"reshape from {stored} to {wanted} does not fit {shape}")
    return wanted


def _pairs_to_halves(array: Array, params: Params) -> Array:
    rows = array.reshape(params["heads"], -1, 2, *array.shape[1:])
    return rows.swapaxes(1, 2).reshape(array.shape)


def _halves_to_pairs(array: Array, params: Params) -> Array:
    rows = array.reshape(params["heads"], 2, -1, *array.shape[1:])
    return rows.swapaxes(1, 2).reshape(array.shape)


def _rope_shape(shape: Shape, params: Params) -> Shape:
    heads = params["heads"]
    if not shape or shape[0] % (2 * heads):
        raise MisshapenWeight(f"{heads} heads of rotary pairs do not fit {shape}")
    return shape


def _rows_before(array: Array, params: Params) -> Array:
    rows = np.zeros((params["count"], *array.shape[1:]), array.dtype)
    return np.concatenate([rows, array])


def _rows_before_shape(shape: Shape, params: Params) -> Shape:
    if not shape:
        raise MisshapenWeight("rows cannot be put before a single value")
    return (shape[0] + params["count"], *shape[1:])


def _rows_from(array: Array, params: Params) -> Array:
    return array[params["count"] :]


def _rows_from_shape(shape: Shape, params: Params) -> Shape:
    if not shape or shape[0] < params["count"]:
        raise MisshapenWeight(f"there are no {params['count']} rows in {shape}")
    return (shape[0] - params["count"], *shape[1:])


# --- changing values -----------------------------------------------------------------------------


def _add(array: Array, params: Params) -> Any:  # noqa: ANN401 - an array
    return np.add(array, array.dtype.type(params["value"]))


def _scale(array: Array, params: Params) -> Any:  # noqa: ANN401 - an array
    return np.multiply(array, array.dtype.type(params["value"]))


def _cast(array: Array, params: Params) -> Array:
    wanted: DType = params["to"]
    if array.dtype == wanted.to_numpy():
        return array
    with np.errstate(all="ignore"):
        return array.astype(wanted.to_numpy())


def _dequantize(array: Array, params: Params) -> Array:
    from maxtool.quantization.codec import dequantize

    return dequantize(array, params["encoding"])


def _quantize(array: Array, params: Params) -> Array:
    """Blocks that decode to ``array`` again.

    Raises:
        ModelMismatch: If there are none: ``array`` did not come from such blocks.
    """
    from maxtool.quantization.codec import dequantize, quantize

    packed = quantize(array, params["encoding"])
    if not _same_bits(dequantize(packed, params["encoding"]), array):
        raise ModelMismatch(f"values cannot be written as {params['encoding'].name} without loss")
    return packed


# --- helpers -------------------------------------------------------------------------------------


def _same_bits(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


def _each(function: Callable[..., Any]) -> Callable[[Sequence[Any], Params], list[Any]]:
    """``function`` on every array, or every shape, by itself."""
    return lambda items, params: [function(item, params) for item in items]


def _same_shape(shapes: Sequence[Shape], _params: Params) -> list[Shape]:
    return list(shapes)


def _to(name: str) -> Callable[[Params], Step]:
    return lambda params: Step(name, params)


def _not_last_axis(params: Params, ndim: int) -> bool:
    return bool(params["axis"] < ndim - 1)


def _keeps_last_axis(params: Params, ndim: int) -> bool:
    return bool(params["axes"][-1] == ndim - 1)


def _wide_float(dtype: DType) -> bool:
    return dtype in (DType.float32, DType.float64)


def _axes_problems(params: Params) -> list[str]:
    axes = params["axes"]
    good = sorted(axes) == list(range(len(axes)))
    return [] if good else [f"axes {list(axes)} are not a permutation"]


def _scale_problems(params: Params) -> list[str]:
    value = params["value"]
    power = math.isfinite(value) and value != 0 and abs(math.frexp(value)[0]) == 0.5
    good = power and math.isfinite(1 / value)
    return [] if good else [f"scale by {value} has no exact inverse; only powers of two have"]


def _add_problems(params: Params) -> list[str]:
    return [] if math.isfinite(params["value"]) else ["add needs a finite value"]


# What a narrower type's every value fits into.
WIDER: Mapping[DType, frozenset[DType]] = {
    DType.float16: frozenset({DType.float32, DType.float64}),
    DType.bfloat16: frozenset({DType.float32, DType.float64}),
    DType.float32: frozenset({DType.float64}),
}


def _cast_problems(params: Params) -> list[str]:
    stored, wanted = params["stored"], params["to"]
    if wanted in WIDER.get(stored, ()) or wanted == stored:
        return []
    return [f"a cast from {stored.value} to {wanted.value} loses values, so it has no inverse"]


REQUANTIZABLE = tuple(QuantizationEncoding[name] for name in ("Q8_0", "Q4_0", "Q5_0"))


def _dequantize_problems(params: Params) -> list[str]:
    if params["encoding"] in REQUANTIZABLE:
        return []
    known = ", ".join(encoding.name for encoding in REQUANTIZABLE)
    return [
        f"{params['encoding'].name} blocks cannot be made again from their values ({known} can)"
    ]


# --- the table -----------------------------------------------------------------------------------

OPERATIONS: Mapping[str, Operation] = {
    "concat": Operation(
        params={"axis": "axis", "sizes": "sizes", "groups": "size"},
        optional={"groups": 1},
        apply=joins.concat,
        shapes=joins.concat_shapes,
        inverse=_to("split"),
        inputs="many",
        whole_rows=_not_last_axis,
    ),
    "split": Operation(
        params={"axis": "axis", "sizes": "sizes", "groups": "size"},
        optional={"groups": 1},
        apply=joins.split,
        shapes=joins.split_shapes,
        inverse=_to("concat"),
        whole_rows=_not_last_axis,
    ),
    "stack": Operation(
        params={"axis": "axis", "count": "size"},
        apply=joins.stack,
        shapes=joins.stack_shapes,
        inverse=_to("unstack"),
        inputs="many",
        whole_rows=lambda params, ndim: bool(params["axis"] < ndim),
    ),
    "unstack": Operation(
        params={"axis": "axis", "count": "size"},
        apply=joins.unstack,
        shapes=joins.unstack_shapes,
        inverse=_to("stack"),
        whole_rows=_not_last_axis,
        recipe=False,
    ),
    "transpose": Operation(
        params={"axes": "axes"},
        apply=_each(_transpose),
        shapes=_each(_transpose_shape),
        inverse=lambda params: Step(
            "transpose", {"axes": tuple(np.argsort(params["axes"]).tolist())}
        ),
        whole_rows=_keeps_last_axis,
        problems=_axes_problems,
    ),
    "reshape": Operation(
        params={"shape": "sizes", "stored": "sizes"},
        apply=_each(_reshape),
        shapes=_each(_reshape_shape),
        inverse=lambda params: Step(
            "reshape", {"shape": params["stored"], "stored": params["shape"]}
        ),
    ),
    "rope_pairs_to_halves": Operation(
        params={"heads": "size"},
        apply=_each(_pairs_to_halves),
        shapes=_each(_rope_shape),
        inverse=_to("rope_halves_to_pairs"),
        whole_rows=lambda _params, ndim: ndim > 1,
    ),
    "rope_halves_to_pairs": Operation(
        params={"heads": "size"},
        apply=_each(_halves_to_pairs),
        shapes=_each(_rope_shape),
        inverse=_to("rope_pairs_to_halves"),
        whole_rows=lambda _params, ndim: ndim > 1,
    ),
    "zero_rows_before": Operation(
        params={"count": "size"},
        apply=_each(_rows_before),
        shapes=_each(_rows_before_shape),
        inverse=_to("rows_from"),
    ),
    "rows_from": Operation(
        params={"count": "size"},
        apply=_each(_rows_from),
        shapes=_each(_rows_from_shape),
        inverse=_to("zero_rows_before"),
        rounds=True,
        recipe=False,
    ),
    "add": Operation(
        params={"value": "number"},
        apply=_each(_add),
        shapes=_same_shape,
        inverse=lambda params: Step("add", {"value": -params["value"]}),
        admits=_wide_float,
        rounds=True,
        problems=_add_problems,
    ),
    "scale": Operation(
        params={"value": "number"},
        apply=_each(_scale),
        shapes=_same_shape,
        inverse=lambda params: Step("scale", {"value": 1 / params["value"]}),
        admits=_wide_float,
        rounds=True,
        problems=_scale_problems,
    ),
    "cast": Operation(
        params={"to": "dtype", "stored": "dtype"},
        apply=_each(_cast),
        shapes=_same_shape,
        inverse=lambda params: Step("cast", {"to": params["stored"], "stored": params["to"]}),
        result=lambda _dtype, params: params["to"],
        rounds=True,
        problems=_cast_problems,
    ),
    "dequantize": Operation(
        params={"encoding": "encoding"},
        apply=_each(_dequantize),
        shapes=_same_shape,
        inverse=_to("quantize"),
        result=lambda _dtype, _params: DType.float32,
        problems=_dequantize_problems,
    ),
    "quantize": Operation(
        params={"encoding": "encoding"},
        apply=_each(_quantize),
        shapes=_same_shape,
        inverse=_to("dequantize"),
        recipe=False,
    ),
}
