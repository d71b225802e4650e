"""Protocols of what runs a model: a processor, its compiled code, the memory of a text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from .errors import RunError
from .manifest import Manifest
from .memory import Array, DeviceMemory, State
from .sampling import Sampling

Progress: TypeAlias = Callable[[float], None]  # told the share of the weights that is there


@dataclass(frozen=True)
class Compiled:
    """Compiled code, ready for calls."""

    machine: Any  # TVM's
    functions: Mapping[str, Any]  # of each entry
    weights: Any  # the one array of weights that they take
    library: Any  # what the code is in; unloaded with the last that refers to it
    # Held during calls: concurrent calls of one virtual machine crash the process.
    lock: threading.Lock = field(default_factory=threading.Lock)


class Decoder(Protocol):
    """Tokens of one text, drawn by the device: each is asked for before the last is read."""

    def begin(self, ids: Sequence[int], start: int, draws: Array, sampling: Sampling) -> None:
        """Ask for the token behind ``ids``, of which the state holds the first ``start``."""

    def step(self, more: int) -> None:
        """Ask for the token behind the last that was asked for; ``more`` steps will follow."""

    def read(self) -> int:
        """The oldest token that was asked for and not read."""


@dataclass(frozen=True)
class TextMemory:
    """Memory that the continuation of one text needs: its state and, on some devices, a decoder.

    Both serve one text after the other: a device that records its steps does so once.
    """

    state: State
    decoder: Decoder | None


class Processor(DeviceMemory, Protocol):
    """Device that runs a model, with the memory that its tensors are in."""

    @property
    def vm(self) -> tuple[int, ...]:
        """Devices for TVM's virtual machine: kind, number and allocator of each."""

    def loading(self) -> AbstractContextManager[None]:
        """Return the context in which compiled code must be loaded."""

    def running(self) -> AbstractContextManager[None]:
        """Return the context in which code must run, and tensors must be made or read."""

    def weights(self, manifest: Manifest, progress: Progress, /) -> list[Any]:
        """The weights in their order."""

    def tensor(self, name: str, array: Array, /) -> Any:  # noqa: ANN401
        """An input as a tensor, good until the next input of the same name."""

    def write(self, tensor: Any, array: Array, /) -> None:  # noqa: ANN401
        """Copy an array into a tensor."""

    def decoder(self, compiled: Compiled, manifest: Manifest, state: State, /) -> Decoder | None:
        """Return a decoder of one text, if the processor has one."""

    def refused(self, name: str, said: str) -> RunError:
        """Return the error for a call that compiled code refuses."""
