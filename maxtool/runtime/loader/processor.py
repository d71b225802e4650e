"""Interfaces of what runs a model, its compiled code, and the memory of a text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from .errors import BadUsage, RunError
from .manifest import Manifest
from .memory import Array
from .sampling import Sampling
from .specs import BufferSpec

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


class State:
    """The memory of one generation: zeros at first, written in place by each call.

    Attributes:
        specs: Its tensors, as the manifest lists them.
        dims: The sizes of its named dimensions.
        lengths: The tokens that were written into each slot, or begun to be.
        has_source: Whether it holds what an encoder gave, where the model has one.
        source_length: How many tokens that was of; None where it was of none.
        parts: What compiled code takes on each device: all its tensors there.

    Raises:
        BadUsage: If ``dims`` lacks a size.
    """

    def __init__(
        self,
        devices: Sequence[Processor],
        specs: Sequence[BufferSpec],
        dims: Mapping[str, int],
        kept: int | None = None,
        slots: int = 1,
        *,
        is_recurrent: bool = False,
    ) -> None:
        """Make room for texts in ``slots``.

        ``kept`` is how many of the last positions it holds in every layer; None for all. Of a text
        that ``is_recurrent`` layers have read, no token can be taken back.
        """
        import tvm_ffi

        named = {size for spec in specs for size in spec.names}
        if wrong := [name for name in sorted(named) if dims.get(name, 0) < 1]:
            raise BadUsage(f"a state needs the sizes of {', '.join(wrong)}, from 1 up")
        self.specs, self.dims = specs, {name: dims[name] for name in named}
        self.lengths, self._kept, self._is_recurrent = [0] * slots, kept, is_recurrent
        self.has_source = False
        self.source_length: int | None = None
        self._tensors = [
            (device, [device.zeros(spec.sizes(dims), spec.dtype) for spec in specs])
            for device in devices
        ]
        self.parts = [tvm_ffi.Array(tensors) for _, tensors in self._tensors]

    @property
    def arrays(self) -> list[Array]:
        """Return the contents, device by device: its own memory on a CPU, a copy from others."""
        return [a for device, tensors in self._tensors for a in device.arrays(tensors)]

    def holds_before(self, position: int, slot: int = 0) -> bool:
        """Return whether it holds all that a token at ``position`` of a text looks back at.

        With windows it holds the last positions alone: once they have begun to overwrite each
        other, a text goes on at its end or begins anew. At the last position it goes on, too: what
        that one has overwritten is out of its own window. With layers that each token changes as a
        whole, it goes on at its end alone.
        """
        length = self.lengths[slot]
        if self._is_recurrent:
            return position in (0, length)
        overwritten = self._kept is not None and length > self._kept
        return not overwritten or position == 0 or position >= length - 1

    def copy(self, count: int, source: int, target: int) -> None:
        """Copy the first ``count`` positions of a slot to another one, which loses what it held.

        Slots are in the memory of a CPU. Of layers that have overwritten positions, all is copied,
        and of those whose state is of all tokens.
        """
        self.lengths[target] = self.lengths[source]
        for array, spec in zip(self.arrays, self.specs, strict=True):
            part: list[int | slice] = [slice(None)] * array.ndim
            axis = spec.positions
            if axis is not None and self.lengths[source] <= array.shape[axis]:
                part[axis] = slice(count)
            from_it, to_it = ((slot, *part[1:]) for slot in (source, target))
            array[to_it] = array[from_it]

    def take_source(self, length: int | None) -> None:
        """Note that a source of so many tokens is about to be written: a text begins anew."""
        self.has_source, self.lengths = True, [0] * len(self.lengths)
        self.source_length = length

    def clear(self) -> None:
        """Make it zeros again."""
        self.has_source, self.lengths = False, [0] * len(self.lengths)
        self.source_length = None
        for device, tensors in self._tensors:
            for tensor in tensors:
                device.clear(tensor)

    def tensor(self, name: str) -> Any:  # noqa: ANN401
        """One of its tensors on the first device."""
        (_, tensors), *_ = self._tensors
        return tensors[[spec.name for spec in self.specs].index(name)]


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


class Processor(Protocol):
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

    def zeros(self, shape: Sequence[int], dtype: str) -> Any:  # noqa: ANN401
        """A tensor of zeros."""

    def clear(self, tensor: Any) -> None:  # noqa: ANN401
        """Make all of a tensor zero again."""

    def arrays(self, tensors: Sequence[Any]) -> list[Array]:
        """Read what tensors hold."""

    def tensor(self, name: str, array: Array, /) -> Any:  # noqa: ANN401
        """An input as a tensor, good until the next input of the same name."""

    def write(self, tensor: Any, array: Array, /) -> None:  # noqa: ANN401
        """Copy an array into a tensor."""

    def decoder(self, compiled: Compiled, manifest: Manifest, state: State, /) -> Decoder | None:
        """Return a decoder of one text, if the processor has one."""

    def refused(self, name: str, said: str) -> RunError:
        """Return the error for a call that compiled code refuses."""
