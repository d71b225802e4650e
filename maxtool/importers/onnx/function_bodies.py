"""Bodies of operators that ONNX defines by others, for those without a function of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto, TypeProto, helper

from maxtool.dtype import TABLE
from maxtool.graph import Tensor
from maxtool.importers.onnx.attributes import Attributes
from maxtool.importers.onnx.protos import FunctionProto, NodeProto
from maxtool.importers.onnx.values import Sizes, TensorSequence, Value


def has_body(domain: str, name: str, version: int) -> bool:
    """Return whether ONNX defines an operator by a function."""
    schema = _schema(domain, name, version)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def body_of(
    domain: str,
    version: int,
    node: NodeProto,
    operands: Sequence[Value],
) -> FunctionProto:
    """The function that defines the operator of a node, for operands of these types."""
    schema = _schema(domain, node.op_type, version)
    if schema.has_function:
        chosen = _since(schema.function_opset_versions, version)
        content = schema.get_function_with_opset_version(chosen)
    else:
        types = [_type(value).SerializeToString() for value in operands]
        chosen = _since(schema.context_dependent_function_opset_versions, version)
        content = schema.get_context_dependent_function_with_opset_version(
            chosen, node.SerializeToString(), types
        )
    return onnx.FunctionProto.FromString(content)


def default_attributes(domain: str, name: str, version: int) -> Attributes:
    """The attributes that an operator has where a node does not say them."""
    attributes = _schema(domain, name, version).attributes.values()
    defaults = {one.name: one.default_value for one in attributes}
    return {key: value for key, value in defaults.items() if value.type}


def _schema(domain: str, name: str, version: int) -> Any:  # noqa: ANN401 - an OpSchema
    try:
        return onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        return None


def _since(versions: Sequence[int], version: int) -> int:
    """The newest version of a body that is not newer than the model's."""
    return max((one for one in versions if one <= version), default=min(versions))


def _type(value: Value) -> Any:  # noqa: ANN401 - a TypeProto
    if isinstance(value, Tensor):
        shape = [int(dim) if dim.is_static else str(dim) for dim in value.shape]
        return helper.make_tensor_type_proto(TABLE[value.dtype].onnx, shape)
    if isinstance(value, Sizes):
        return helper.make_tensor_type_proto(TensorProto.INT64, value.elements.shape)
    if isinstance(value, TensorSequence) and value.items:
        return helper.make_sequence_type_proto(_type(value.items[0]))
    return TypeProto()
