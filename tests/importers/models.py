"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
OPSET = 20


def value(name: str, shape: Sequence[Any] | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    initializers: Mapping[str, np.ndarray] | None = None,
    opset: int = OPSET,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(one, name) for name, one in (initializers or {}).items()]
    results = [value(name, None) for name in outputs]
    graph = helper.make_graph(nodes, "net", inputs, results, tensors)
    opsets = [helper.make_opsetid(*one) for one in {"": opset, **(domains or {})}.items()]
    return helper.make_model(graph, opset_imports=opsets, functions=functions)


def saved(proto: onnx.ModelProto, folder: Path, name: str = "net.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path
