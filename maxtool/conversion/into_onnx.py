"""An ONNX model with other values of its initializers, from any checkpoint with the same names.

The model's files are copied, and payloads written over where they lie, so that all else is the same
byte for byte. A payload that protobuf packs in groups of seven bits has no fixed size, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from maxtool.casting import cast
from maxtool.conversion.streaming import LOST, check_cast, counted
from maxtool.errors import ModelMismatch, UsageError
from maxtool.files import check_output, check_parts, check_space, shortage, staged, staged_parts
from maxtool.quantization import dequantize
from maxtool.recipe.step import Array
from maxtool.weights import Checkpoint, open_checkpoint
from maxtool.weights.formats.onnx import SUFFIX
from maxtool.weights.names import did_you_mean, first_of
from maxtool.weights.tensor_info import TensorInfo

# What is copied between two tellings of progress.
COPIED_BYTES = 1 << 24

Progress = Callable[[int], None]


@dataclass(frozen=True)
class IntoModel:
    """A checkpoint whose tensors go into a copy of a model.

    Attributes:
        checkpoint: Where the values are.
        model: The model, whose initializers have their names, types and shapes.
        output: Where the copy appears.
        force: Whether it replaces what is there.
        allow_nonfinite: Whether NaN, infinities and what becomes infinite are cast.
    """

    checkpoint: Checkpoint
    model: Checkpoint
    output: Path
    force: bool = False
    allow_nonfinite: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of all files of the copy."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def shortage(self) -> str | None:
        """Tell that there is no room for the copy, where there is none."""
        return shortage(self.output, self.nbytes)

    @property
    def files(self) -> dict[Path, str]:
        """The model's files, and what each is called beside the output, which comes first."""
        beside = {file: file.name for file in self.model.seen if file != self.model.path}
        return {self.model.path: self.output.name, **beside}

    @property
    def notes(self) -> list[str]:
        """Remarks on both files, and on what stays and what is cast."""
        others = len(self.model.tensors) - len(self.checkpoint.tensors)
        own = [self.model.tensors[name] for name in self.checkpoint.tensors]
        given = self.checkpoint.tensors
        narrowed = [info.name for info in own if info.dtype is not given[info.name].dtype]
        notes = [*self.checkpoint.notes, *self.model.notes]
        notes += [f"initializers of the model that stay as they are: {others}"] if others else []
        return notes + ([f"cast to the model's types: {first_of(narrowed)}"] if narrowed else [])

    def run(self, progress: Progress) -> None:
        """Write the copy; ``progress`` is told the bytes written since the last call.

        Raises:
            MachineLacks: If there is no room for it.
            ModelMismatch: If values do not fit the model's type; nothing is written then.
        """
        check_space(self.output, self.nbytes)
        with self._staged() as places:
            for file, path in places.items():
                _copy(file, path, progress)
            for name in self.checkpoint.tensors:
                info = self.model.tensors[name]
                if info.is_in_order:
                    _write_over(places[info.file], info, self._values(info))
            for each in (self.checkpoint, self.model):
                each.check_unchanged()

    def check(self) -> None:
        """Check that all tensors have a place in the model, and that the output may be written."""
        problems = [problem for name in self.checkpoint.tensors for problem in self._of(name)]
        if problems := problems or [*self._shared()]:
            what = f"{self.checkpoint.path} does not fit the model"
            hint = "convert MODEL.onnx -o NAME.safetensors writes what would"
            raise ModelMismatch(what, file=self.model.path, problems=problems, hint=hint)
        sources = (*self.checkpoint.protected, *self.model.protected)
        check_output(self.output, force=self.force, sources=sources)
        if len(self.files) > 1:
            check_parts(self.output, self._parts, force=self.force, sources=sources)

    def _shared(self) -> Iterator[str]:
        """Tensors with other values than the model's, where its files have others' bytes, too."""
        held = [info for info in self.model.tensors.values() if info.is_in_order and info.nbytes]
        by_place = sorted(held, key=lambda info: (str(info.file), info.offset))
        before: TensorInfo | None = None  # reaches furthest of those that begin earlier
        for info in by_place:
            if before is None or before.file != info.file or _end(before) <= info.offset:
                before = info
                continue
            if not (self._stays(before) and self._stays(info)):
                both = " and ".join(sorted([before.name, info.name]))
                yield f"{both}: the model keeps them in the same bytes"
            before = max(before, info, key=_end)

    def _stays(self, info: TensorInfo) -> bool:
        """Return whether the model's values stay, bit by bit."""
        if info.name not in self.checkpoint.tensors:
            return True
        return self._values(info).tobytes() == self.model.read(info.name).data.tobytes()

    def _of(self, name: str) -> Iterator[str]:
        """Reasons that keep a tensor from the place of its name."""
        own, there = self.checkpoint.tensors[name], self.model.tensors.get(name)
        if there is None:
            hint = did_you_mean(name, self.model.tensors)
            yield f"{name}: no initializer is called so" + (f"; {hint}" if hint else "")
        elif own.shape != there.shape:
            yield f"{name}: shape {list(own.shape)}, and {list(there.shape)} in the model"
        elif own.dtype is not there.dtype and not (own.dtype.is_float() and there.dtype.is_float()):
            yield f"{name}: {own.dtype.name}, and {there.dtype.name} in the model"
        elif not (there.is_in_order or self._stays(there)):
            yield (
                f"{name}: its values are packed in the model's protobuf, and would take other room;"
                " save the model with raw_data, as onnx.numpy_helper.from_array makes it"
            )

    def _values(self, info: TensorInfo) -> Array:
        """The values of a tensor as the model's type."""
        weight = self.checkpoint.read(info.name)
        values = weight.data
        if weight.quantization_encoding is not None:
            values = dequantize(values, weight.quantization_encoding, tensor=info.name)
        if weight.dtype is info.dtype:
            return values
        odd = counted(values)
        converted, odd[LOST] = cast(values, info.dtype)
        before = replace(info, dtype=weight.dtype)
        check_cast(before, info, odd, allow_nonfinite=self.allow_nonfinite)
        return converted

    @property
    def _parts(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self.files.values())))

    @contextmanager
    def _staged(self) -> Iterator[dict[Path, Path]]:
        """Yield where each file is written; put them in place if the block succeeds."""
        files = self.files
        if len(files) == 1:
            with staged(self.output, replace=self.force) as path:
                yield {self.model.path: path}
            return
        parts = [*files.values()]
        with staged_parts(self.output, parts=parts, old=self._parts, replace=self.force) as folder:
            yield {file: folder / name for file, name in files.items()}


def into_model(
    source: Path, model: Path, output: Path, *, force: bool = False, allow_nonfinite: bool = False
) -> IntoModel:
    """Plan a copy of a model with the values of a checkpoint, and check it.

    Raises:
        UsageError: If the model or the output is none of ONNX, or the output may not be written.
        ModelMismatch: If tensors have no place in the model.
    """
    if output.suffix.lower() != SUFFIX:
        what = f"--into writes an ONNX model, and the output ends in {output.suffix or 'nothing'}"
        raise UsageError(what, file=output, hint="name it NAME.onnx")
    opened = open_checkpoint(model)
    found = "a folder" if model.is_dir() else opened.format
    if found != "onnx":
        raise UsageError(f"--into takes an ONNX model, and this is {found}", file=model)
    folder = opened.path.parent
    if apart := [file for file in opened.seen if file.parent != folder]:
        what = "the model keeps weights in a folder of its own, which cannot be written over"
        raise UsageError(what, file=apart[0], hint="save the model with its data beside it")
    if output.name in (file.name for file in opened.seen if file != opened.path):
        what = "the model keeps its data in a file of that name"
        raise UsageError(what, file=output, hint="give the output another name")
    planned = IntoModel(open_checkpoint(source), opened, output, force, allow_nonfinite)
    planned.check()
    return planned


def _end(info: TensorInfo) -> int:
    return info.offset + info.nbytes


def _copy(file: Path, path: Path, progress: Progress) -> None:
    """Copy a file."""
    with file.open("rb") as source, path.open("xb") as target:
        while part := source.read(COPIED_BYTES):
            target.write(part)
            progress(len(part))


def _write_over(path: Path, info: TensorInfo, values: Array) -> None:
    """Write a payload over the one that a copy has."""
    with path.open("r+b") as target:
        target.seek(info.offset)
        target.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
