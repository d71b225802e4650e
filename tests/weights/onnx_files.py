"""ONNX models, made by the onnx package and byte by byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from maxtool.dtype import TABLE, DType

VALUES = np.array([[1, 2, 0.5], [0.25, 4, 1]])


def model(*tensors: Any, nodes: tuple[Any, ...] = (), **options: Any) -> Any:
    graph = helper.make_graph(list(nodes), "graph", [], [], list(tensors))
    return helper.make_model(graph, producer_name="tests", **options)


def typed(dtype: DType, values: np.ndarray = VALUES) -> Any:
    """A tensor in the field of its type."""
    array = values.astype(dtype.to_numpy())
    return helper.make_tensor(dtype.value, code(dtype), array.shape, array.reshape(-1).tolist())


def raw(dtype: DType) -> Any:
    """A tensor in raw_data."""
    array = VALUES.astype(dtype.to_numpy())
    return helper.make_tensor(dtype.value, code(dtype), array.shape, array.tobytes(), raw=True)


def code(dtype: DType) -> int:
    result = TABLE[dtype].onnx
    assert result is not None
    return result


def numpy_of(tensor: Any, base: str = "") -> np.ndarray:
    return numpy_helper.to_array(tensor, base)  # type: ignore[no-any-return]


def constant(name: str, value: float) -> Any:
    return numpy_helper.from_array(np.full(2, value, np.float32), name)


def varint(value: int) -> bytes:
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def whole(graph: bytes, before: bytes = b"\x08\x0a") -> bytes:
    """A model of a graph's bytes."""
    return before + field(7, graph) + field(8, field(2, 20))


def tensor(
    dims: bytes = field(1, 2),
    kind: int | bytes = 1,
    name: bytes = b"w",
    data: bytes = field(9, bytes(8)),
) -> bytes:
    """A model with one tensor: two floats unless something else is given."""
    data_type = field(2, kind) if isinstance(kind, int) else kind
    return whole(field(5, dims + data_type + field(8, name) + data))


def external(entries: Mapping[str, object], size: int = 2, **changes: Any) -> bytes:
    """A model whose tensor keeps its floats elsewhere."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size], data_location=1)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    for key, value in changes.items():
        setattr(tensor, key, value)
    return model(tensor).SerializeToString()  # type: ignore[no-any-return]
