"""Answers to all questions about one checkpoint, computed before anything is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from maxtool import files
from maxtool.errors import NegativeAnswer
from maxtool.weights import digest, tensor_slices
from maxtool.weights.histogram import Histogram, counted
from maxtool.weights.names import did_you_mean
from maxtool.weights.opened_checkpoint import OpenedCheckpoint
from maxtool.weights.stats import Stats, measure
from maxtool.weights.summary import Summary, summarize
from maxtool.weights.tensor_info import TensorInfo

Advance = Callable[[int], None]
# Given a label and a number of bytes, a progress bar.
Progress = Callable[[str, int], AbstractContextManager[Advance]]


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions beyond names, types and shapes.

    Attributes:
        pattern: Shell pattern that the names of tensors must match.
        stats: Whether statistics of every tensor are wanted.
        sha256: Whether checksums are wanted.
        values: Tensors and slices to show.
        histograms: Whether histograms are wanted, of what statistics are.
    """

    pattern: str | None = None
    stats: bool = False
    sha256: bool = False
    values: tuple[str, ...] = ()
    histograms: bool = False

    @property
    def reads_payloads(self) -> bool:
        """Return whether headers are not enough to answer it."""
        return self.stats or self.sha256 or bool(self.values)


@dataclass(frozen=True, slots=True)
class SliceValues:
    """A slice of a tensor: its elements, decoded if they are quantized.

    Attributes:
        text: The slice as it was written, with brackets; empty for all of it.
    """

    tensor: TensorInfo
    text: str
    array: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The answers, empty if not asked for.

    Statistics, histograms and SHA-256 are by tensor or by file.
    """

    opened: OpenedCheckpoint
    summary: Summary
    stats: Mapping[str, Stats]
    file_digests: Mapping[Path, str]
    digests: Mapping[str, str]
    values: tuple[SliceValues, ...]
    histograms: Mapping[str, Histogram | None] = field(default_factory=dict)


def inspect(opened: OpenedCheckpoint, question: Questions, progress: Progress) -> Inspection:
    """Answer a question about a checkpoint, reading every payload once for each kind of answer."""
    if question.reads_payloads:
        opened.need_payloads()
    summary = summarize(opened.checkpoint, pattern=question.pattern)
    if question.pattern is not None and not summary.tensors:
        what = f"no tensor's name matches {question.pattern!r}"
        raise NegativeAnswer(what, file=opened.location)
    values = tuple(_values(opened, text) for text in question.values)
    stats: Mapping[str, Stats] = {}
    digests: Mapping[str, str] = {}
    checksums: dict[Path, str] = {}
    if question.stats:
        with progress("measuring", summary.total.nbytes) as advance:
            stats = _of_each(summary.tensors, opened, measure, advance)
    histograms: Mapping[str, Histogram | None] = {}
    if question.stats and question.histograms:
        with progress("counting", summary.total.nbytes) as advance:
            histograms = {
                name: counted(opened.read(name), of, advance) for name, of in stats.items()
            }
    if question.sha256:
        checked = opened.checkpoint.files
        with progress("hashing files", sum(map(opened.nbytes, checked))) as advance:
            checksums = {file: files.sha256(file, advance) for file in checked}
        with progress("hashing tensors", summary.total.nbytes) as advance:
            digests = _of_each(summary.tensors, opened, digest.sha256, advance)
    if question.reads_payloads:
        opened.checkpoint.check_unchanged()
    return Inspection(opened, summary, stats, checksums, digests, values, histograms)


def _of_each(
    tensors: Sequence[TensorInfo],
    opened: OpenedCheckpoint,
    compute: Callable[..., Any],
    advance: Advance,
) -> dict[str, Any]:
    return {tensor.name: compute(opened.read(tensor.name), advance) for tensor in tensors}


def _values(opened: OpenedCheckpoint, text: str) -> SliceValues:
    tensors = opened.checkpoint.tensors
    selection = tensor_slices.parse(text, tensors)
    tensor = tensors.get(selection.name)
    if tensor is None:
        what = f"no tensor {selection.name!r}"
        hint = did_you_mean(selection.name, tensors)
        raise NegativeAnswer(what, file=opened.location, hint=hint)
    return SliceValues(
        tensor, selection.text, tensor_slices.take(opened.read(tensor.name), selection)
    )
