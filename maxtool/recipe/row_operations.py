"""Operations on the rows of tensors: left out, zeros in their place, kept as columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from maxtool.errors import MisshapenWeight
from maxtool.recipe.step import Array, Operation, Params, Shape, each


def _rows_before(array: Array, params: Params) -> Array:
    rows = np.zeros((params["count"], *array.shape[1:]), array.dtype)
    return np.concatenate([rows, array])


def _rows_before_shape(shape: Shape, params: Params) -> Shape:
    if not shape:
        raise MisshapenWeight("rows cannot be put before a single value")
    return (shape[0] + params["count"], *shape[1:])


def _rows_from_shape(shape: Shape, params: Params) -> Shape:
    if not shape or shape[0] < params["count"]:
        raise MisshapenWeight(f"there are no {params['count']} rows in {shape}")
    return (shape[0] - params["count"], *shape[1:])


def _first_rows_shape(shape: Shape, params: Params) -> Shape:
    return _with_rows(shape, params, params["stored"], params["count"])


def _rows_behind(array: Array, params: Params) -> Array:
    rows = np.zeros((params["stored"] - params["count"], *array.shape[1:]), array.dtype)
    return np.concatenate([array, rows])


def _rows_behind_shape(shape: Shape, params: Params) -> Shape:
    return _with_rows(shape, params, params["count"], params["stored"])


def _with_rows(shape: Shape, params: Params, found: int, wanted: int) -> Shape:
    if params["count"] > params["stored"]:
        raise MisshapenWeight(f"{params['count']} rows are more than the {params['stored']} stored")
    if not shape or shape[0] != found:
        raise MisshapenWeight(f"there are no {found} rows in {shape}")
    return (wanted, *shape[1:])


def _chosen_shape(shape: Shape, params: Params) -> Shape:
    if not shape or shape[0] != params["stored"] or max(params["rows"], default=0) >= shape[0]:
        rows = ", ".join(map(str, params["rows"]))
        raise MisshapenWeight(f"there are no {params['stored']} rows with {rows} in {shape}")
    return (len(params["rows"]), *shape[1:])


def _among_zeros(array: Array, params: Params) -> Array:
    rows = np.zeros((params["stored"], *array.shape[1:]), array.dtype)
    rows[list(params["rows"])] = array
    return rows


def _among_zeros_shape(shape: Shape, params: Params) -> Shape:
    if not shape or shape[0] != len(params["rows"]):
        raise MisshapenWeight(f"there are no {len(params['rows'])} rows in {shape}")
    if max(params["rows"], default=0) >= params["stored"]:
        raise MisshapenWeight(f"row {max(params['rows'])} is not one of {params['stored']}")
    return (params["stored"], *shape[1:])


def _are_all(params: Params) -> bool:
    return bool(params["count"] == params["stored"])


COUNT, SOME = {"count": "size"}, {"count": "size", "stored": "size"}
CHOSEN = {"rows": "numbers", "stored": "size"}


def _outputs_first_shape(shape: Shape, params: Params) -> Shape:
    """The shape of matrices with a row for each output, which are there so or the other way."""
    wanted = (params["rows"], params["columns"])
    if shape[-2:] not in (wanted, wanted[::-1]):
        raise MisshapenWeight(f"{wanted} or {wanted[::-1]} is needed at the end of {shape}")
    return (*shape[:-2], *wanted)


def _outputs_first(array: Array, params: Params) -> Array:
    """The matrices with a row for each output; square ones are taken to have one for each input."""
    fits = array.shape == _outputs_first_shape(array.shape, params)
    is_square = params["rows"] == params["columns"]
    return array if fits and not is_square else np.ascontiguousarray(array.swapaxes(-1, -2))


def _inputs_first_shape(shape: Shape, params: Params) -> Shape:
    return (*_outputs_first_shape(shape, params)[:-2], params["columns"], params["rows"])


def _inputs_first(array: Array, params: Params) -> Array:  # noqa: ARG001
    return np.ascontiguousarray(array.swapaxes(-1, -2))


MATRICES = {"rows": "size", "columns": "size"}
ROW_OPERATIONS: Mapping[str, Operation] = {
    "zero_rows_before": Operation(COUNT, each(_rows_before), each(_rows_before_shape), "rows_from"),
    "rows_from": Operation(
        params=COUNT,
        apply=each(lambda array, params: array[params["count"] :]),
        shapes=each(_rows_from_shape),
        inverse="zero_rows_before",
        rounds=True,
        recipe=False,
    ),
    "first_rows": Operation(
        params=SOME,
        apply=each(lambda array, params: array[: params["count"]]),
        shapes=each(_first_rows_shape),
        inverse="zero_rows_behind",
        rounds=True,
        does_nothing=_are_all,
    ),
    "zero_rows_behind": Operation(
        params=SOME,
        apply=each(_rows_behind),
        shapes=each(_rows_behind_shape),
        inverse="first_rows",
        does_nothing=_are_all,
        recipe=False,
    ),
    "outputs_first": Operation(
        params=MATRICES,
        apply=each(_outputs_first),
        shapes=each(_outputs_first_shape),
        inverse="inputs_first",
    ),
    "inputs_first": Operation(
        params=MATRICES,
        apply=each(_inputs_first),
        shapes=each(_inputs_first_shape),
        inverse="outputs_first",
        recipe=False,
    ),
    "chosen_rows": Operation(
        params=CHOSEN,
        apply=each(lambda array, params: array[list(params["rows"])]),
        shapes=each(_chosen_shape),
        inverse="rows_among_zeros",
        whole_rows=lambda _params, ndim: ndim > 1,
        rounds=True,
    ),
    "rows_among_zeros": Operation(
        CHOSEN, each(_among_zeros), each(_among_zeros_shape), "chosen_rows"
    ),
}
