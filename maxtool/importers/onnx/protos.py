"""Types of what the onnx package parses; they are built at run time, so that none can be named."""

from __future__ import annotations

from typing import Any, TypeAlias

ModelProto: TypeAlias = Any
GraphProto: TypeAlias = Any
NodeProto: TypeAlias = Any
FunctionProto: TypeAlias = Any
TensorProto: TypeAlias = Any
TypeProto: TypeAlias = Any
ValueInfoProto: TypeAlias = Any
