"""An ONNX model opened: its graph without the payloads of initializers, which are read lazily.

The onnx package parses the structure. It would copy every payload, so initializers of the main
graph are cut from the bytes that it is given; the index of the checkpoint has them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from maxtool.errors import InputError, MalformedFile
from maxtool.importers.onnx.limits import MOST_STRUCTURE_BYTES
from maxtool.weights import Checkpoint, open_checkpoint
from maxtool.weights.formats.protobuf import BYTES, MessageFields, Span
from maxtool.weights.source_file import SourceFile, open_source

# Field numbers of onnx.proto.
GRAPH, INITIALIZER = 7, 5
DEFAULT_DOMAIN = "ai.onnx"


@dataclass(frozen=True)
class OnnxModel:
    """A model: its structure, as the onnx package has it, and the index of its initializers.

    Attributes:
        checkpoint: The file and those beside it, with the initializers.
        proto: The ``ModelProto``, without the initializers of the main graph.
    """

    checkpoint: Checkpoint
    proto: Any

    @property
    def path(self) -> Path:
        """The file."""
        return self.checkpoint.path

    @property
    def graph(self) -> Any:  # noqa: ANN401 - a GraphProto
        """The main graph."""
        return self.proto.graph

    @cached_property
    def opsets(self) -> Mapping[str, int]:
        """Versions of the operator sets by domain; that of ONNX itself is ``""``."""
        return opsets_of(self.proto)

    @cached_property
    def functions(self) -> Mapping[tuple[str, str, str], Any]:
        """The functions of the model by domain, name and overload."""
        return {
            (domain_of(one.domain), one.name, one.overload): one for one in self.proto.functions
        }


def opsets_of(proto: Any) -> dict[str, int]:  # noqa: ANN401 - a ModelProto or a FunctionProto
    """Versions of the operator sets that a model or a function imports, by domain."""
    return {domain_of(entry.domain): entry.version for entry in proto.opset_import}


def domain_of(name: str) -> str:
    """A domain as tables have it: that of ONNX itself has two names."""
    return "" if name == DEFAULT_DOMAIN else name


def open_model(path: Path) -> OnnxModel:
    """Open a model; payloads are read when they are asked for.

    Raises:
        MissingFile: If there is no such file.
        MalformedFile: If it is not an ONNX model.
        InputError: If it is of another format, or larger than what is read.
    """
    checkpoint = open_checkpoint(path)
    if checkpoint.format != "onnx":
        raise InputError(f"a file of the format {checkpoint.format}, not an ONNX model", file=path)
    with open_source(path, checkpoint.seen.get(path)) as file:
        content = b"".join(_without_initializers(file))
    try:
        proto = onnx.ModelProto.FromString(content)
    except DecodeError as error:
        raise MalformedFile(f"not an ONNX model: {error}", file=path) from error
    return OnnxModel(checkpoint, proto)


def _without_initializers(file: SourceFile) -> Iterator[bytes]:
    """The bytes of a model, in pieces, without the initializers of its graph."""
    wire = MessageFields(file)
    start = kept = 0
    for number, kind, first, end in list(wire.fields(Span(0, file.size))):
        if number == GRAPH and kind == BYTES:
            yield _piece(file, kept, start)
            yield from _graph(file, wire, Span(first, end))
            kept = end
        start = end
    yield _piece(file, kept, file.size)


def _graph(file: SourceFile, wire: MessageFields, span: Span) -> Iterator[bytes]:
    """The field of a graph with its length, without initializers."""
    pieces = []
    start = kept = span.start
    for number, _, _, end in wire.fields(span):
        if number == INITIALIZER:
            pieces.append((kept, start))
            kept = end
        start = end
    pieces.append((kept, span.end))
    size = sum(end - first for first, end in pieces)
    if size > MOST_STRUCTURE_BYTES:
        what = f"a graph of {size} bytes beside its initializers; at most {MOST_STRUCTURE_BYTES}"
        raise InputError(what, file=file.path)
    yield bytes([GRAPH << 3 | BYTES]) + _varint(size)
    for first, end in pieces:
        yield _piece(file, first, end)


def _piece(file: SourceFile, start: int, end: int) -> bytes:
    return file.read(start, end - start) if end > start else b""


def _varint(number: int) -> bytes:
    """A number in groups of seven bits, lowest first."""
    groups = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])
