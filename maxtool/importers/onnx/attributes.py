"""Attributes of nodes: those of a function's nodes may refer to the function's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx import NodeProto as NodeProtoClass

from maxtool.importers.onnx.operator_call import dtype_of
from maxtool.importers.onnx.protos import NodeProto
from maxtool.importers.onnx.refusals import RefusedNode, require

# By name, the attributes as onnx has them (``AttributeProto``).
Attributes: TypeAlias = Mapping[str, Any]

PYTHON: Mapping[int, Callable[[Any], Any]] = {
    AttributeProto.FLOAT: lambda attribute: attribute.f,
    AttributeProto.INT: lambda attribute: attribute.i,
    AttributeProto.STRING: lambda attribute: attribute.s.decode(errors="replace"),
    AttributeProto.TENSOR: lambda attribute: attribute.t,
    AttributeProto.GRAPH: lambda attribute: attribute.g,
    AttributeProto.FLOATS: lambda attribute: list(attribute.floats),
    AttributeProto.INTS: lambda attribute: list(attribute.ints),
    AttributeProto.STRINGS: lambda attribute: [one.decode() for one in attribute.strings],
    AttributeProto.GRAPHS: lambda attribute: list(attribute.graphs),
    AttributeProto.TYPE_PROTO: lambda attribute: attribute.tp,
}


def resolved(node: NodeProto, given: Attributes) -> dict[str, Any]:
    """The attributes of a node; what refers to an attribute that was not given is absent."""
    known = {}
    for attribute in node.attribute:
        reference = attribute.ref_attr_name
        meant = given.get(reference) if reference else attribute
        if meant is not None:
            known[attribute.name] = meant
    return known


def with_attributes(node: NodeProto, attributes: Attributes) -> NodeProto:
    """A copy of a node with attributes that refer to no others."""
    copy = NodeProtoClass()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for name, attribute in attributes.items():
        copy.attribute.append(attribute)
        copy.attribute[-1].name = name
    return copy


def as_python(attributes: Attributes) -> dict[str, Any]:
    """Attributes as Python has them; a :class:`RefusedNode` for a kind that is not read."""
    return {name: _python(name, attribute) for name, attribute in attributes.items()}


def _python(name: str, attribute: Any) -> Any:  # noqa: ANN401 - of any kind
    read = PYTHON.get(attribute.type)
    if read is None:
        kind = AttributeProto.AttributeType.Name(attribute.type)
        raise RefusedNode(f"its attribute {name!r} is of the kind {kind}, which is not supported")
    return read(attribute)


def array_of(tensor: Any) -> NDArray[Any]:  # noqa: ANN401 - a TensorProto
    """The elements of a tensor inside a node."""
    dtype = dtype_of(tensor.data_type)
    inside = tensor.data_location != TensorProto.EXTERNAL
    require(inside, "a tensor of a node is in another file, which is for initializers only")
    return np.asarray(numpy_helper.to_array(tensor)).astype(dtype.to_numpy(), copy=False)
