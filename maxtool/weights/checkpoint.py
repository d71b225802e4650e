"""A checkpoint: the index of every tensor in one or more files, and lazy reads of the payloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import MalformedFile, MissingWeight
from maxtool.weights import locate
from maxtool.weights.data import WeightData
from maxtool.weights.formats import HUGGING_FACE, Format
from maxtool.weights.jsonfile import read_object
from maxtool.weights.names import did_you_mean
from maxtool.weights.scaled import QUANTIZATION, ScaledTensor, paired, scheme
from maxtool.weights.source import Bytes, map_file
from maxtool.weights.spec import TensorInfo
from maxtool.weights.view import Weights

__all__ = ["Checkpoint", "TensorInfo", "open_checkpoint"]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """An opened checkpoint. Opening reads headers only; payloads are mapped when they are read.

    Attributes:
        path: What was opened.
        format: The format of its files.
        files: Every file with tensors.
        tensors: Every tensor by name, in the order of the files.
        metadata: GGUF key/values as Python or NumPy values, safetensors' ``__metadata__``, ONNX
            properties, or the plain values beside the tensors of a PyTorch checkpoint.
        config: The ``config.json`` beside the tensors of a Hugging Face checkpoint, which is
            safetensors or PyTorch; ``None`` for other formats. A ``quantization_config`` is left
            out where :mod:`maxtool.weights.scaled` reads what it describes as float weights.
        config_file: Where ``config`` was read.
        folder: Where tokenizer files are looked for.
        notes: What is odd about the files but no error, to be shown to the user.
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
    _maps: dict[Path, Bytes] = field(default_factory=dict, init=False, repr=False)

    def read(self, name: str, *, aligned: bool = True) -> WeightData:
        """The data of one tensor, as a read-only view of the file.

        Args:
            name: The tensor.
            aligned: Whether to copy data that does not lie at a multiple of its element's size, as
                compiled code needs it; NumPy does not.

        Raises:
            MissingWeight: If there is no tensor ``name``, or it lacks its scale; it is a
                ``KeyError`` too.
        """
        info = self.tensors.get(name)
        if info is None:
            hint = did_you_mean(name, self.tensors)
            raise MissingWeight(f"no tensor {name!r}", file=self.path, tensor=name, hint=hint)
        data = self._view(info, aligned)
        return WeightData(data, name, info.dtype, info.shape, info.encoding)

    @cached_property
    def weights(self) -> Weights:
        """The root of the hierarchical view."""
        return Weights(self)

    @property
    def protected(self) -> tuple[Path, ...]:
        """Where nothing may be written: the files, and a Hugging Face checkpoint's folder."""
        return (self.folder, *self.files) if self.format in HUGGING_FACE else self.files

    def _view(self, info: TensorInfo, aligned: bool) -> NDArray[Any]:
        """The payload as mapped; made anew only where it is unaligned, packed or scaled."""
        if isinstance(info, ScaledTensor):
            return info.read(lambda part: self._view(part, aligned))
        if not info.nbytes:
            return _empty(info)
        if info.unpack is not None:
            return info.unpack(self._map(info.file))
        raw = np.frombuffer(self._map(info.file), np.uint8, info.nbytes, info.offset)
        array = raw.view(info.stored_dtype).reshape(info.stored_shape)
        return array.copy() if aligned and not array.flags.aligned else array

    def _map(self, file: Path) -> Bytes:
        if file not in self._maps:
            self._maps[file] = map_file(file)
        return self._maps[file]


def open_checkpoint(path: Path, *, config: Path | None = None) -> Checkpoint:
    """Open a checkpoint, reading and checking headers only.

    Args:
        path: A Hugging Face folder, a safetensors, GGUF, PyTorch, ONNX or NumPy file, or the
            ``index.json`` of shards.
        config: A configuration to use instead of the ``config.json`` beside the tensors.

    Raises:
        MissingFile: If something is not there.
        MalformedFile: If something is not what its format demands.
        InputError: If the files use what is not supported.
    """
    found = locate.find(Path(path))
    config_file = config or _config_beside(found)
    content = read_object(config_file) if config_file else None
    declared = scheme(content) if content is not None else None
    if declared is not None and content is not None:  # it has been acted upon
        del content[QUANTIZATION]
    tensors, notes = paired(found.tensors, declared)
    return Checkpoint(
        path=Path(path),
        format=found.format,
        files=found.files,
        tensors=tensors,
        metadata=found.metadata,
        config=content,
        config_file=config_file,
        folder=found.files[0].parent,
        notes=found.notes + notes,
    )


def _empty(info: TensorInfo) -> NDArray[Any]:
    try:
        return np.empty(info.stored_shape, info.stored_dtype)
    except ValueError:  # NumPy multiplies the dimensions that are not 0
        what = f"an empty tensor of too large a shape: {list(info.shape)}"
        raise MalformedFile(what, file=info.file, tensor=info.name) from None


def _config_beside(found: locate.Found) -> Path | None:
    beside = found.files[0].parent / "config.json"
    return beside if found.format in HUGGING_FACE and beside.is_file() else None
