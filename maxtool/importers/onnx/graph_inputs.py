"""The inputs of a model: their types, of which shapes may be said anew, and values may be fixed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import UsageError
from maxtool.graph import Dim, Tensor, TensorType
from maxtool.importers.onnx.limits import MOST_BYTES, MOST_DIMS
from maxtool.importers.onnx.operator_call import dtype_of
from maxtool.importers.onnx.protos import TypeProto, ValueInfoProto
from maxtool.importers.onnx.refusals import RefusedNode, require
from maxtool.importers.onnx.values import known
from maxtool.weights.names import did_you_mean


def identifier(text: str) -> str:
    """A text as the name of a size: what an identifier cannot have becomes ``_``."""
    plain = re.sub(r"\W", "_", text)
    return plain if plain.isidentifier() else f"_{plain}"


def type_of(info: ValueInfoProto, shape: Sequence[int | str] | None) -> TensorType:
    """The type of an input, a ``ValueInfoProto``.

    Args:
        info: The input.
        shape: Its sizes, if they were said; those of the model else. A size without a number or a
            name is named after the input.

    Raises:
        RefusedNode: If it is not a tensor, or its rank is not known.
    """
    kind = info.type.WhichOneof("value")
    words = (kind or "nothing").removesuffix("_type").replace("_", " ")
    require(kind == "tensor_type", f"it is of the kind {words}; only tensors are supported")
    return _tensor_type(info.name, info.type.tensor_type, shape)


def _tensor_type(name: str, tensor: TypeProto, shape: Sequence[int | str] | None) -> TensorType:
    dtype = dtype_of(tensor.elem_type)
    if shape is None:
        require(tensor.HasField("shape"), "the model does not say its shape; --shape does")
        shape = [_size(name, axis, dim) for axis, dim in enumerate(tensor.shape.dim)]
    elif tensor.HasField("shape"):
        _require_fitting(tensor.shape.dim, shape)
    return checked(TensorType(dtype, [Dim(size) for size in shape]))


def _size(name: str, axis: int, dim: Any) -> int | str:  # noqa: ANN401 - a Dimension
    if dim.WhichOneof("value") == "dim_value":
        size = int(dim.dim_value)
        return size if size >= 0 else identifier(f"{name}_{axis}")
    said = identifier(dim.dim_param)
    return said if said.strip("_") else identifier(f"{name}_{axis}")


def _require_fitting(declared: Sequence[Any], given: Sequence[int | str]) -> None:
    ranks = f"--shape has {len(given)} sizes, and the model {len(declared)}"
    require(len(declared) == len(given), ranks)
    for axis, (dim, size) in enumerate(zip(declared, given, strict=True)):
        fixed = dim.dim_value if dim.WhichOneof("value") == "dim_value" else -1
        differs = fixed >= 0 and size != fixed
        require(not differs, f"dimension {axis} is {fixed} in the model, not {size}")


def checked(tensor_type: TensorType) -> TensorType:
    """A type, if a tensor of it may exist."""
    sizes = [dim.value for dim in tensor_type.shape if isinstance(dim.value, int)]
    require(len(tensor_type.shape) <= MOST_DIMS, f"more than {MOST_DIMS} dimensions")
    nbytes = math.prod(sizes) * tensor_type.dtype.size_in_bytes
    require(nbytes <= MOST_BYTES, f"a tensor of {nbytes} bytes, more than any memory has")
    return tensor_type


def sequence_items(
    info: ValueInfoProto, shapes: Mapping[str, Sequence[int | str]]
) -> dict[str, TensorType]:
    """The types of the tensors of an input that is a sequence: as many as ``--shape`` names.

    They are called ``NAME_0``, ``NAME_1`` and so on.
    """
    element = info.type.sequence_type.elem_type
    require(element.HasField("tensor_type"), "it is a sequence of something else than tensors")
    names: list[str] = []
    while (name := f"{info.name}_{len(names)}") in shapes:
        names.append(name)
    hint = f"--shape {info.name}_0=SIZES, {info.name}_1=SIZES, ... say which tensors are in it"
    require(bool(names), f"it is a sequence; {hint}")
    return {name: _tensor_type(name, element.tensor_type, shapes[name]) for name in names}


def is_sequence(info: ValueInfoProto) -> bool:
    """Return whether an input is a sequence."""
    return bool(info.type.HasField("sequence_type"))


def input_types(
    inputs: Iterable[Any], shapes: Mapping[str, Sequence[int | str]]
) -> tuple[dict[str, TensorType], list[str]]:
    """The types of inputs by name, and a line on each that cannot be taken."""
    types: dict[str, TensorType] = {}
    problems: list[str] = []
    for info in inputs:
        try:
            require(info.name not in types, "another input has its name")
            if is_sequence(info):
                types |= sequence_items(info, shapes)
            else:
                types[info.name] = type_of(info, shapes.get(info.name))
        except (RefusedNode, ValueError) as error:
            problems.append(f"input {info.name!r}: {error}")
    return types, problems


def fixed_values(
    inputs: Iterable[ValueInfoProto], fixed: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, Tensor], list[str]]:
    """The values of fixed inputs in their types, and a line on each that has not that type."""
    values: dict[str, Tensor] = {}
    problems: list[str] = []
    for info in inputs:
        if info.name not in fixed:
            continue
        try:
            values[info.name] = _fixed(info, fixed[info.name])
        except (RefusedNode, ValueError) as error:
            problems.append(f"input {info.name!r}: {error}")
    return values, problems


def _fixed(info: ValueInfoProto, array: NDArray[Any]) -> Tensor:
    wanted = type_of(info, list(array.shape))
    cast = array.astype(wanted.dtype.to_numpy())
    require(
        np.array_equal(cast.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
        or wanted.dtype.is_float(),
        f"--fix has values that {wanted.dtype.value} does not",
    )
    return known(cast)


def require_inputs(option: str, given: Iterable[str], names: Sequence[str]) -> None:
    """Refuse an option for inputs that the model does not have."""
    problems = [
        f"{option} {name}: there is no such input" + (f"; {near}" if near else "")
        for name in given
        if name not in names
        for near in [did_you_mean(name, names)]
    ]
    if problems:
        hint = f"the model's inputs are {', '.join(names)}" if names else "the model has no inputs"
        raise UsageError("inputs that the model does not have", problems=problems, hint=hint)
