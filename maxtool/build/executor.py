"""Executors: what runs the steps of a build, and what they send back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from maxtool.build.step import Step


@dataclass(slots=True)
class Sent:
    """Message of a process on the step that it ran.

    Attributes:
        result: What the command printed as JSON.
        error: What was wrong, as errors are in JSON; None if nothing was.
        said: What was written to stderr.
        inputs: The files that were read.
        outputs: SHA-256 of the files that were written, by path.
        peak_bytes: The most memory that the process had.
        brought: Those of the inputs that it brought here itself, checked by their checksums.
    """

    result: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    said: str = ""
    inputs: Sequence[str] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    peak_bytes: int = 0
    brought: Collection[str] = ()


class Executor(Protocol):
    """Runner of steps, several at a time."""

    def begin(self, step: Step, memory: int) -> None:
        """Begin a step that takes so many bytes of memory."""

    def ended(self) -> Sequence[tuple[str, Sent]]:
        """Wait until steps have ended: their names, and what they sent."""

    def stop(self) -> None:
        """End all that still run."""
