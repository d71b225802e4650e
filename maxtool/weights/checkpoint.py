"""A checkpoint: the index of every tensor in one or more files, and lazy reads of the payloads."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import MalformedFile, MissingWeight
from maxtool.weights import locate
from maxtool.weights.composite import CompositeTensor
from maxtool.weights.formats import HUGGING_FACE, Format
from maxtool.weights.jsonfile import read_object
from maxtool.weights.names import did_you_mean
from maxtool.weights.quantization_config import interpreted
from maxtool.weights.source_file import SourceFile, Stamp, changed, map_file, open_source, stamp
from maxtool.weights.stored_weight import StoredWeight
from maxtool.weights.tensor_info import TensorInfo
from maxtool.weights.view import Weights
from maxtool.weights.weight_data import WeightData


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """An opened checkpoint. Opening reads headers only; payloads are read when they are asked for.

    A file that is written, cut or replaced since it was opened is an error, wherever it is noticed.

    Attributes:
        path: What was opened.
        format: The format of its files.
        files: Every file with tensors.
        tensors: Every tensor by name, in the order of the files.
        metadata: GGUF key/values as Python or NumPy values, safetensors' ``__metadata__``, ONNX
            properties, or the plain values beside the tensors of a PyTorch checkpoint.
        config: The ``config.json`` beside the tensors of a Hugging Face checkpoint, which is
            safetensors or PyTorch; ``None`` for other formats. A ``quantization_config`` is left
            out where ``tensors`` has what it describes as weights.
        config_file: Where ``config`` was read.
        folder: Where tokenizer files are looked for.
        notes: What is odd about the files but no error, to be shown to the user.
        unsupported: Why a ``quantization_config`` is not understood, and what would be.
        seen: Every file, the configuration's too, as it was when it was opened.
    """

    path: Path
    format: Format
    files: tuple[Path, ...]
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, object]
    config: Mapping[str, object] | None
    config_file: Path | None
    folder: Path
    notes: tuple[str, ...] = ()
    unsupported: str = ""
    seen: Mapping[Path, Stamp] = field(default_factory=dict, repr=False)
    _maps: dict[Path, bytes | mmap.mmap] = field(default_factory=dict, init=False, repr=False)

    def read(self, name: str) -> WeightData:
        """The data of one tensor, read-only, in memory of its own.

        Raises:
            MissingWeight: If there is no tensor ``name``, or it lacks its scale; it is a
                ``KeyError`` too.
            ChangedFile: If its file is no longer what was opened.
        """
        return self._weight(name, self._load)

    def view(self, name: str) -> WeightData:
        """One tensor as a view of the mapped file, where its elements lie there as in memory.

        So models larger than memory can be used, and processes share what they read. The price: if
        another process cuts the file, touching the data ends this one by a signal (SIGBUS).
        """
        return self._weight(name, self._mapped)

    def stored(self, name: str) -> StoredWeight:
        """One tensor to be read part by part, so that its size costs no memory."""
        info = self._info(name)
        whole = None if info.is_in_order and info.nbytes else self._load(info)
        return StoredWeight(info, self.seen.get(info.file), whole)

    def rows(self, name: str, index: int | NDArray[Any]) -> WeightData:
        """The slices ``index`` of one tensor along its first dimension; no others are read."""
        return self.stored(name).slices(index)

    def check_unchanged(self) -> None:
        """Check that every file is there, and what it was when it was opened."""
        for file, before in self.seen.items():
            if stamp(file) != before:
                raise changed(file)

    def _info(self, name: str) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            hint = did_you_mean(name, self.tensors)
            raise MissingWeight(f"no tensor {name!r}", file=self.path, tensor=name, hint=hint)
        return info

    def _weight(self, name: str, load: Callable[[TensorInfo], NDArray[Any]]) -> WeightData:
        info = self._info(name)
        return WeightData(load(info), name, info.dtype, info.shape, info.encoding)

    @cached_property
    def weights(self) -> Weights:
        """The root of the hierarchical view."""
        return Weights(MappedCheckpoint(self))

    @property
    def protected(self) -> tuple[Path, ...]:
        """Return paths that may not be written: what was opened, a file or a folder, and all files.

        Beside a file that was named by itself there is room for others.
        """
        return (self.path, *self.files, *self.seen)

    def _load(self, info: TensorInfo) -> NDArray[Any]:
        """The payload, read."""
        if isinstance(info, CompositeTensor):
            return info.read(self._load)
        return _payload(info, self.seen)

    def _mapped(self, info: TensorInfo) -> NDArray[Any]:
        """The payload as mapped; made anew only where it is unaligned, packed or scaled."""
        if not info.is_in_order or not info.nbytes:
            return self._load(info)
        raw = np.frombuffer(self._map(info.file), np.uint8, info.nbytes, info.offset)
        array = raw.view(info.stored_dtype).reshape(info.stored_shape)
        return array if array.flags.aligned else array.copy()

    def _map(self, file: Path) -> bytes | mmap.mmap:
        if file not in self._maps:
            self._maps[file] = map_file(file, self.seen.get(file) or stamp(file))
        return self._maps[file]


class MappedCheckpoint:
    """A checkpoint whose weights are views of its mapped files."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.tensors = checkpoint.tensors
        self.read = checkpoint.view


def open_checkpoint(path: Path, *, config: Path | None = None, payloads: bool = True) -> Checkpoint:
    """Open a checkpoint, reading and checking headers only.

    Args:
        path: A Hugging Face folder, a safetensors, GGUF, PyTorch, ONNX or NumPy file, or the
            ``index.json`` of shards.
        config: A configuration to use instead of the ``config.json`` beside the tensors.
        payloads: Whether the files hold more than headers. Shapes of some quantized weights are in
            small tensors, which are read.

    Raises:
        MissingFile: If something is not there.
        MalformedFile: If something is not what its format demands.
        InputError: If the files use what is not supported.
    """
    located = locate.find(Path(path))
    config_file = config or _config_beside(located)
    seen = dict(located.seen) | ({config_file: stamp(config_file)} if config_file else {})
    content = read_object(config_file) if config_file else None
    view = partial(_payload, seen=seen) if payloads else None
    meant = interpreted(located.tensors, located.metadata, content, view)
    return Checkpoint(
        path=Path(path),
        format=located.format,
        files=located.files,
        tensors=meant.tensors,
        metadata=located.metadata,
        config=meant.config,
        config_file=config_file,
        folder=located.files[0].parent,
        notes=located.notes + meant.notes,
        unsupported=meant.unsupported,
        seen=seen,
    )


def _payload(info: TensorInfo, seen: Mapping[Path, Stamp]) -> NDArray[Any]:
    """The data of a tensor as it is stored, read."""
    if not info.nbytes:
        return _empty(info)
    with open_source(info.file, seen.get(info.file)) as file:
        array = info.unpack(file) if info.unpack else _in_order(file, info)
    array.flags.writeable = False
    return array


def _in_order(file: SourceFile, info: TensorInfo) -> NDArray[Any]:
    raw = file.array(info.offset, info.nbytes)
    return raw.view(info.stored_dtype).reshape(info.stored_shape)


def _empty(info: TensorInfo) -> NDArray[Any]:
    try:
        return np.empty(info.stored_shape, info.stored_dtype)
    except ValueError:  # NumPy multiplies the dimensions that are not 0
        what = f"an empty tensor of too large a shape: {list(info.shape)}"
        raise MalformedFile(what, file=info.file, tensor=info.name) from None


def _config_beside(located_tensors: locate.LocatedTensors) -> Path | None:
    beside = located_tensors.files[0].parent / "config.json"
    return beside if located_tensors.format in HUGGING_FACE and beside.is_file() else None
