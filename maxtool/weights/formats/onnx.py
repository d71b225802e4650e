"""ONNX: the initializers of a model's graph and of the graphs inside its nodes.

Layout: onnx.proto, whose field numbers are below; a test compares them with the onnx package. The
package itself is not needed to read: parsing with it copies every payload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from maxtool.dtype import BY_ONNX, DType
from maxtool.errors import InputError
from maxtool.weights.formats import onnx_external, onnx_values
from maxtool.weights.formats.file_index import FileIndex
from maxtool.weights.formats.protobuf import (
    BYTES,
    MAX_FIELDS,
    VARINT,
    FieldSpec,
    MessageFields,
    Span,
)
from maxtool.weights.jsonfile import uncollected
from maxtool.weights.names import UniqueNames
from maxtool.weights.source_file import SourceFile, cut_off
from maxtool.weights.tensor_info import TensorInfo

SUFFIX = ".onnx"
MAX_DIMS = 64
MAX_DIM = (1 << 63) - 1
MAX_NAME_BYTES = 4096
MAX_TEXT_BYTES = 1 << 20
# Graphs inside nodes inside graphs; protobuf itself stops at 100 messages.
MAX_DEPTH = 30
# What a tensor takes beyond reading its fields, counted in fields.
TENSOR_COST = 16

MANY = MAX_FIELDS
INT = (VARINT,)
MODEL = {
    1: FieldSpec("ir_version", kinds=INT),
    2: FieldSpec("producer_name"),
    3: FieldSpec("producer_version"),
    4: FieldSpec("domain"),
    5: FieldSpec("model_version", kinds=INT),
    6: FieldSpec("doc_string"),
    7: FieldSpec("graph"),
    8: FieldSpec("opset_import", 1 << 10),
    14: FieldSpec("metadata_props", 1 << 14),
    25: FieldSpec("functions", 1 << 16),
}
OPSET = {1: FieldSpec("domain"), 2: FieldSpec("version", kinds=INT)}
PROPERTY = {1: FieldSpec("key"), 2: FieldSpec("value")}
# Nodes and initializers are read one after the other, and never counted.
GRAPH = {
    1: FieldSpec("node", MANY),
    5: FieldSpec("initializer", MANY),
    15: FieldSpec("sparse_initializer", MANY),
}
FUNCTION = {1: FieldSpec("name")}
FUNCTION_NODE = 7
NODE = {3: FieldSpec("name"), 4: FieldSpec("op_type"), 5: FieldSpec("attribute", 1 << 12)}
ATTRIBUTE = {1: FieldSpec("name"), 6: FieldSpec("g"), 11: FieldSpec("graphs", 1 << 12)}
TENSOR = {
    1: FieldSpec("dims", MAX_DIMS, (VARINT, BYTES)),
    2: FieldSpec("data_type", kinds=INT),
    3: FieldSpec("segment"),
    4: FieldSpec("float_data"),
    5: FieldSpec("int32_data"),
    7: FieldSpec("int64_data"),
    8: FieldSpec("name"),
    9: FieldSpec("raw_data"),
    10: FieldSpec("double_data"),
    11: FieldSpec("uint64_data"),
    13: FieldSpec("external_data", 64),
    14: FieldSpec("data_location", kinds=INT),
}
TEXTS = ("producer_name", "producer_version", "domain", "doc_string")
EXTERNAL = 1
STRING = 8
# TensorProto.DataType, where it has no DType here.
OTHER_TYPES = {
    14: "COMPLEX64",
    15: "COMPLEX128",
    21: "UINT4",
    22: "INT4",
    23: "FLOAT4E2M1",
    25: "UINT2",
    26: "INT2",
    27: "FLOAT6E2M3",
    28: "FLOAT6E3M2",
}

Fields = Mapping[str, list[tuple[int, int, int]]]


class _TensorHeader(NamedTuple):
    """A tensor before its payload is looked at."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    at: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.size_in_bytes


def is_model(data: bytes) -> bool:
    """Return whether bytes may be an ONNX model: every writer puts its version first."""
    return data[:1] == b"\x08" and len(data) > 2 and data[1] < 0x80 and data[2] >> 3 in MODEL


def read(file: SourceFile) -> FileIndex:
    """Read and check a model's initializers.

    Initializers of a graph inside a node are named after the node, the attribute and, in a list of
    graphs, its number, with dots between.
    """
    with uncollected():
        return _Reader(file).read()


class _Reader:
    def __init__(self, file: SourceFile) -> None:
        self.path = path = file.path
        self.wire = MessageFields(file)
        self.names = UniqueNames(path)
        self.tensors: list[TensorInfo] = []
        self.beside = onnx_external.ExternalFiles(path)
        self.strings: list[str] = []
        self.sparse = 0

    def read(self) -> FileIndex:
        whole = Span(0, self.wire.file.size)
        fields = self.wire.collect(whole, MODEL, "the model")
        for name in ("ir_version", "graph", "opset_import"):
            if name not in fields:
                what = f"not an ONNX model, or cut short: it has no {name}"
                self.wire.fail(what, whole.end, hint=cut_off())
        metadata = self._metadata(fields)
        self._graph(_span(fields["graph"]), "", 0)
        for _, start, end in fields.get("functions", ()):
            self._function(Span(start, end))
        return FileIndex(tuple(self.tensors), metadata, self._notes(), self.beside.files)

    def _metadata(self, fields: Fields) -> dict[str, object]:
        """Version, producer and opsets, and the properties under their own keys."""
        metadata: dict[str, object] = {"ir_version": fields["ir_version"][0][1]}
        for name in TEXTS:
            if name in fields:
                metadata[name] = self._text(fields, name, MAX_TEXT_BYTES)
        if "model_version" in fields:
            metadata["model_version"] = fields["model_version"][0][1]
        for _, start, end in fields["opset_import"]:
            opset = self.wire.collect(Span(start, end), OPSET, "an opset")
            domain = self._text(opset, "domain", MAX_TEXT_BYTES) or "ai.onnx"
            metadata[f"opset.{domain}"] = opset["version"][0][1] if "version" in opset else 0
        for _, start, end in fields.get("metadata_props", ()):
            entry = self.wire.collect(Span(start, end), PROPERTY, "a property")
            key = self._text(entry, "key", MAX_TEXT_BYTES)
            metadata.setdefault(key, self._text(entry, "value", MAX_TEXT_BYTES))
        return metadata

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if self.strings:
            more = f" and {len(self.strings) - 10} more" if len(self.strings) > 10 else ""
            notes.append(f"tensors of text were left out: {', '.join(self.strings[:10])}{more}")
        if self.sparse:
            notes.append(f"sparse initializers were left out: {self.sparse}")
        return tuple(notes)

    def _graph(self, span: Span, prefix: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            self.wire.fail(f"graphs nested deeper than {MAX_DEPTH}", span.start)
        index = 0
        for number, wire_type, start, end in self.wire.fields(span):
            spec = GRAPH.get(number)
            if spec is None:
                continue
            self.wire.check(spec, wire_type, "a graph", span.start)
            if spec.name == "node":
                self._node(Span(start, end), prefix, index, depth)
                index += 1
            elif spec.name == "initializer":
                self._tensor(Span(start, end), prefix)
            else:
                self.sparse += 1

    def _function(self, span: Span) -> None:
        fields = self.wire.collect(span, FUNCTION, "a function")
        prefix = f"{self._text(fields, 'name', MAX_NAME_BYTES)}."
        index = 0
        for number, wire_type, start, end in self.wire.fields(span):
            if number == FUNCTION_NODE:
                self.wire.check(GRAPH[1], wire_type, "a function", span.start)
                self._node(Span(start, end), prefix, index, 0)
                index += 1

    def _node(self, span: Span, prefix: str, index: int, depth: int) -> None:
        """Read the graphs among a node's attributes."""
        fields = self.wire.collect(span, NODE, "a node")
        for _, start, end in fields.get("attribute", ()):
            attribute = self.wire.collect(Span(start, end), ATTRIBUTE, "an attribute")
            if "g" not in attribute and "graphs" not in attribute:
                continue
            name = self._text(fields, "name", MAX_NAME_BYTES)
            name = name or f"{self._text(fields, 'op_type', MAX_NAME_BYTES)}_{index}"
            below = f"{prefix}{name}.{self._text(attribute, 'name', MAX_NAME_BYTES)}."
            if len(below) > MAX_NAME_BYTES:
                self.wire.fail(f"a name longer than {MAX_NAME_BYTES} characters", start)
            for _, inner, stop in attribute.get("g", ()):
                self._graph(Span(inner, stop), below, depth + 1)
            for number, (_, inner, stop) in enumerate(attribute.get("graphs", ())):
                self._graph(Span(inner, stop), f"{below}{number}.", depth + 1)

    def _text(self, fields: Fields, name: str, most: int) -> str:
        return self.wire.text(_span(fields[name]), f"a {name}", most) if name in fields else ""

    def _tensor(self, span: Span, prefix: str) -> None:
        self.wire.spend(TENSOR_COST, span.start)
        fields = self.wire.collect(span, TENSOR, "a tensor")
        name = self._text(fields, "name", MAX_NAME_BYTES)
        if not name:
            self.wire.fail("an initializer without a name", span.start)
        name = self.names.add(prefix, name, span.start)
        code = fields["data_type"][0][1] if "data_type" in fields else 0
        if code == STRING:
            self.strings.append(name)
            return
        if code in OTHER_TYPES:
            what = f"the element type {OTHER_TYPES[code]} is not supported"
            raise InputError(what, file=self.path, tensor=name, offset=span.start)
        if code not in BY_ONNX:
            self.wire.fail(f"the element type {code} is unknown", span.start, name)
        shape = self._shape(fields, name, span.start)
        self.tensors.append(
            self._placed(_TensorHeader(name, BY_ONNX[code], shape, span.start), fields)
        )

    def _shape(self, fields: Fields, name: str, offset: int) -> tuple[int, ...]:
        dims: list[int] = []
        for wire_type, start, end in fields.get("dims", ()):
            room = MAX_DIMS + 1 - len(dims)
            numbers = iter([start]) if wire_type == VARINT else self.wire.numbers(Span(start, end))
            dims += [dim for dim, _ in zip(numbers, range(room), strict=False)]
        if len(dims) > MAX_DIMS:
            self.wire.fail(f"more than {MAX_DIMS} dimensions", offset, name)
        if any(dim > MAX_DIM for dim in dims):
            self.wire.fail(f"a dimension outside 0 to {MAX_DIM}", offset, name)
        return tuple(dims)

    def _placed(self, header: _TensorHeader, fields: Fields) -> TensorInfo:
        """Return the tensor with the location of its payload, which has the right size."""
        if "segment" in fields:
            what = "a tensor in segments is not supported"
            raise InputError(what, file=self.path, tensor=header.name, offset=header.at)
        location = fields["data_location"][0][1] if "data_location" in fields else 0
        stored = [name for name in ("raw_data", *onnx_values.FIELDS) if name in fields]
        if location not in (0, EXTERNAL):
            self.wire.fail(f"the data location {location} is unknown", header.at, header.name)
        if (location == EXTERNAL) != ("external_data" in fields):
            self.wire.fail("data location and external data contradict", header.at, header.name)
        if len(stored) + location > 1:
            what = f"the tensor's values are in several places: {', '.join(stored)}"
            self.wire.fail(what + (" and another file" if location else ""), header.at, header.name)
        if location == EXTERNAL:
            return self._external(header, fields)
        if not stored:
            self._check_size(header, 0, header.at)
            return self._at(header, header.at)
        return self._inline(header, stored[0], _span(fields[stored[0]]))

    def _inline(self, header: _TensorHeader, field: str, span: Span) -> TensorInfo:
        held = span.end - span.start
        if field == "raw_data":
            self._check_size(header, held, span.start)
            return self._at(header, span.start)
        wanted = onnx_values.FIELD_OF[header.dtype]
        if field != wanted:
            what = f"{header.dtype.name} values are in {field} and not in {wanted}"
            self.wire.fail(what, span.start, header.name)
        if wanted in onnx_values.AS_IN_MEMORY:
            self._check_size(header, held, span.start)
            return self._at(header, span.start)
        if not header.size <= held <= header.size * 10:
            what = f"shape {list(header.shape)} cannot be in the {held} bytes of {field}"
            self.wire.fail(what, span.start, header.name)
        values = onnx_values.PackedNumbers(header.name, header.dtype, header.shape, self.path, span)
        unpack = partial(onnx_values.unpack, values)
        return TensorInfo(
            header.name, header.dtype, header.shape, None, self.path, span.start, unpack
        )

    def _at(self, header: _TensorHeader, offset: int) -> TensorInfo:
        return TensorInfo(header.name, header.dtype, header.shape, None, self.path, offset)

    def _check_size(self, header: _TensorHeader, held: int, offset: int) -> None:
        if held != header.nbytes:
            stated = f"shape {list(header.shape)} of {header.dtype.name}"
            needs = f"{stated} needs {header.nbytes} bytes, not {held}"
            self.wire.fail(needs, offset, header.name)

    def _external(self, header: _TensorHeader, fields: Fields) -> TensorInfo:
        entries: dict[str, str] = {}
        for _, start, end in fields["external_data"]:
            entry = self.wire.collect(Span(start, end), PROPERTY, "external data")
            key = self._text(entry, "key", MAX_NAME_BYTES)
            if key in entries:
                self.wire.fail(f"external data says {key!r} twice", start, header.name)
            entries[key] = self._text(entry, "value", MAX_NAME_BYTES)
        location = self.beside.find(entries, header.nbytes, header.name, header.at)
        return TensorInfo(
            header.name, header.dtype, header.shape, None, location.file, location.offset
        )


def _span(values: list[tuple[int, int, int]]) -> Span:
    """Return the span of the field that may occur only once."""
    _, start, end = values[0]
    return Span(start, end)
