"""ONNX: the initializers of a model's graph and of the graphs inside its nodes.

Layout: onnx.proto, whose field numbers are below; a test compares them with the onnx package. The
package itself is not needed to read: parsing with it copies every payload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from maxtool.dtype import BY_ONNX
from maxtool.errors import InputError
from maxtool.weights.formats import onnx_external, onnx_values
from maxtool.weights.formats.file_index import FileIndex
from maxtool.weights.formats.protobuf import (
    BYTES,
    FIXED32,
    MAX_FIELDS,
    VARINT,
    FieldSpec,
    MessageFields,
    Span,
)
from maxtool.weights.jsonfile import uncollected
from maxtool.weights.names import UniqueNames, first_of
from maxtool.weights.source_file import SourceFile, cut_off
from maxtool.weights.tensor_info import TensorInfo, TensorSpec

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
# Numbers in lists of attributes, floats and ints: forests of trees have millions, each a field.
LISTS = {
    7 << 3 | FIXED32: re.compile(rb"(?:\x3d.{4})+", re.DOTALL),
    8 << 3 | VARINT: re.compile(rb"(?:\x40[\x80-\xff]{0,9}[\x00-\x7f])+"),
}
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
        self.file = file
        self.wire = MessageFields(file)
        self.names = UniqueNames(file.path)
        self.tensors: list[TensorInfo] = []
        self.beside = onnx_external.ExternalFiles(file)
        self.strings: list[str] = []
        self.sparse = 0

    def read(self) -> FileIndex:
        whole = Span(0, self.file.size)
        fields = self.wire.collect(whole, MODEL, "the model")
        for name in ("ir_version", "graph", "opset_import"):
            if name not in fields:
                what = f"not an ONNX model, or cut short: it has no {name}"
                self.file.fail(what, whole.end, hint=cut_off())
        metadata = self._metadata(fields)
        self._graph(_spans(fields, "graph")[0], "", 0)
        for span in _spans(fields, "functions"):
            function = self.wire.collect(span, FUNCTION, "a function")
            prefix = f"{self._text(function, 'name', MAX_NAME_BYTES)}."
            self._graph(span, prefix, 0, {FUNCTION_NODE: GRAPH[1]}, "a function")
        return FileIndex(tuple(self.tensors), metadata, self._notes(), self.beside.files)

    def _metadata(self, fields: Fields) -> dict[str, object]:
        """Version, producer and opsets, and the properties under their own keys."""
        metadata: dict[str, object] = {"ir_version": _number(fields, "ir_version")}
        for name in TEXTS:
            if name in fields:
                metadata[name] = self._text(fields, name, MAX_TEXT_BYTES)
        if "model_version" in fields:
            metadata["model_version"] = _number(fields, "model_version")
        for span in _spans(fields, "opset_import"):
            opset = self.wire.collect(span, OPSET, "an opset")
            domain = self._text(opset, "domain", MAX_TEXT_BYTES) or "ai.onnx"
            metadata[f"opset.{domain}"] = _number(opset, "version")
        for span in _spans(fields, "metadata_props"):
            entry = self.wire.collect(span, PROPERTY, "a property")
            key = self._text(entry, "key", MAX_TEXT_BYTES)
            metadata.setdefault(key, self._text(entry, "value", MAX_TEXT_BYTES))
        return metadata

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if self.strings:
            notes.append(f"tensors of text were left out: {first_of(self.strings)}")
        if self.sparse:
            notes.append(f"sparse initializers were left out: {self.sparse}")
        return tuple(notes)

    def _graph(
        self,
        span: Span,
        prefix: str,
        depth: int,
        known: Mapping[int, FieldSpec] = GRAPH,
        what: str = "a graph",
    ) -> None:
        if depth > MAX_DEPTH:
            self.file.fail(f"graphs nested deeper than {MAX_DEPTH}", span.start)
        index = 0
        for number, wire_type, start, end in self.wire.fields(span):
            spec = known.get(number)
            if spec is None:
                continue
            self.wire.check(spec, wire_type, what, span.start)
            if spec.name == "node":
                self._node(Span(start, end), prefix, index, depth)
                index += 1
            elif spec.name == "initializer":
                self._tensor(Span(start, end), prefix)
            else:
                self.sparse += 1

    def _node(self, span: Span, prefix: str, index: int, depth: int) -> None:
        """Read the graphs among a node's attributes."""
        fields = self.wire.collect(span, NODE, "a node")
        for at in _spans(fields, "attribute"):
            attribute = self.wire.collect(at, ATTRIBUTE, "an attribute", LISTS)
            if "g" not in attribute and "graphs" not in attribute:
                continue
            name = self._text(fields, "name", MAX_NAME_BYTES)
            name = name or f"{self._text(fields, 'op_type', MAX_NAME_BYTES)}_{index}"
            below = f"{prefix}{name}.{self._text(attribute, 'name', MAX_NAME_BYTES)}."
            if len(below) > MAX_NAME_BYTES:
                self.file.fail(f"a name longer than {MAX_NAME_BYTES} characters", at.start)
            for graph in _spans(attribute, "g"):
                self._graph(graph, below, depth + 1)
            for number, graph in enumerate(_spans(attribute, "graphs")):
                self._graph(graph, f"{below}{number}.", depth + 1)

    def _text(self, fields: Fields, name: str, most: int) -> str:
        return self.wire.text(_spans(fields, name)[0], f"a {name}", most) if name in fields else ""

    def _tensor(self, span: Span, prefix: str) -> None:
        self.wire.spend(TENSOR_COST, span.start)
        fields = self.wire.collect(span, TENSOR, "a tensor")
        name = self._text(fields, "name", MAX_NAME_BYTES)
        if not name:
            self.file.fail("an initializer without a name", span.start)
        name = self.names.add(prefix, name, span.start)
        code = _number(fields, "data_type")
        if code == STRING:
            self.strings.append(name)
            return
        if code in OTHER_TYPES:
            what = f"the element type {OTHER_TYPES[code]} is not supported"
            raise InputError(what, file=self.file.path, tensor=name, offset=span.start)
        if code not in BY_ONNX:
            self.file.fail(f"the element type {code} is unknown", span.start, name)
        spec = TensorSpec(name, BY_ONNX[code], self._shape(fields, name, span.start))
        self.tensors.append(self._placed(spec, fields, span.start))

    def _shape(self, fields: Fields, name: str, offset: int) -> tuple[int, ...]:
        dims: list[int] = []
        for wire_type, start, end in fields.get("dims", ()):
            room = MAX_DIMS + 1 - len(dims)
            numbers = iter([start]) if wire_type == VARINT else self.wire.numbers(Span(start, end))
            dims += [dim for dim, _ in zip(numbers, range(room), strict=False)]
        if len(dims) > MAX_DIMS:
            self.file.fail(f"more than {MAX_DIMS} dimensions", offset, name)
        if any(dim > MAX_DIM for dim in dims):
            self.file.fail(f"a dimension outside 0 to {MAX_DIM}", offset, name)
        return tuple(dims)

    def _placed(self, spec: TensorSpec, fields: Fields, at: int) -> TensorInfo:
        """Return the tensor with the location of its payload, which has the right size."""
        if "segment" in fields:
            what = "a tensor in segments is not supported"
            raise InputError(what, file=self.file.path, tensor=spec.name, offset=at)
        location = _number(fields, "data_location")
        stored = [name for name in ("raw_data", *onnx_values.FIELDS) if name in fields]
        if location not in (0, EXTERNAL):
            self.file.fail(f"the data location {location} is unknown", at, spec.name)
        if (location == EXTERNAL) != ("external_data" in fields):
            self.file.fail("data location and external data contradict", at, spec.name)
        if len(stored) + location > 1:
            what = f"the tensor's values are in several places: {', '.join(stored)}"
            self.file.fail(what + (" and another file" if location else ""), at, spec.name)
        if location == EXTERNAL:
            return self.beside.find(spec, self._external(spec, fields), at)
        if not stored:
            return self._as_in_memory(spec, Span(at, at))
        return self._inline(spec, stored[0], _spans(fields, stored[0])[0])

    def _inline(self, spec: TensorSpec, field: str, span: Span) -> TensorInfo:
        wanted = onnx_values.FIELD_OF[spec.dtype]
        if field not in ("raw_data", wanted):
            what = f"{spec.dtype.name} values are in {field} and not in {wanted}"
            self.file.fail(what, span.start, spec.name)
        if field in ("raw_data", *onnx_values.AS_IN_MEMORY):
            return self._as_in_memory(spec, span)
        held = span.end - span.start
        if not spec.size <= held <= spec.size * 10:
            what = f"shape {list(spec.shape)} cannot be in the {held} bytes of {field}"
            self.file.fail(what, span.start, spec.name)
        return spec.at(self.file.path, span.start, partial(onnx_values.unpack, spec, span))

    def _as_in_memory(self, spec: TensorSpec, span: Span) -> TensorInfo:
        held = span.end - span.start
        if held != spec.nbytes:
            stated = f"shape {list(spec.shape)} of {spec.dtype.name}"
            what = f"{stated} needs {spec.nbytes} bytes, not {held}"
            self.file.fail(what, span.start, spec.name)
        return spec.at(self.file.path, span.start)

    def _external(self, spec: TensorSpec, fields: Fields) -> dict[str, str]:
        """The keys and values of a tensor's ``external_data``."""
        entries: dict[str, str] = {}
        for span in _spans(fields, "external_data"):
            entry = self.wire.collect(span, PROPERTY, "external data")
            key = self._text(entry, "key", MAX_NAME_BYTES)
            if key in entries:
                self.file.fail(f"external data says {key!r} twice", span.start, spec.name)
            entries[key] = self._text(entry, "value", MAX_NAME_BYTES)
        return entries


def _spans(fields: Fields, name: str) -> list[Span]:
    """Return where the fields of a name lie."""
    return [Span(start, end) for _, start, end in fields.get(name, ())]


def _number(fields: Fields, name: str) -> int:
    """Return the value of a field that may occur only once; 0 without it."""
    return fields[name][0][1] if name in fields else 0
