"""Which device a model runs on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from .cuda_gpu import CudaGpu
from .errors import BadUsage, DoesNotFit, MachineLacks, RunError
from .host import Host
from .machine import Compiled
from .manifest import Manifest
from .memory import Array, State
from .sampling import Sampling

NAME = re.compile(r"cpu|cuda(?::(\d{1,4}))?")
# By the kind a model was compiled for: what that is, and what to do for the other.
OTHER = {
    "cpu": ("a CPU", "compile it with --target cuda for the GPU here, or --target cuda:sm_XX"),
    "cuda": ("GPUs", "compile it with --target cpu"),
}


class Decoder(Protocol):
    """What draws the tokens of one text by itself: each is asked for before the last is read."""

    def begin(self, ids: Sequence[int], start: int, draws: Array, sampling: Sampling) -> None:
        """Ask for the token behind ``ids``, of which the state holds the first ``start``."""

    def step(self, more: int) -> None:
        """Ask for the token behind the last that was asked for; ``more`` steps will follow."""

    def read(self) -> int:
        """The oldest token that was asked for and not read."""


@dataclass(frozen=True)
class TextMemory:
    """What the continuation of one text needs: its state, and what draws its tokens, if anything.

    Both serve one text after the other: a device that records its steps does so once.
    """

    state: State
    decoder: Decoder | None


class Processor(Protocol):
    """What runs a model and has the memory that its tensors are in."""

    @property
    def vm(self) -> tuple[int, ...]:
        """What TVM's virtual machine is started with: kind, number and allocator of each device."""

    def loading(self) -> AbstractContextManager[None]:
        """What must hold while the compiled code is loaded."""

    def running(self) -> AbstractContextManager[None]:
        """What must hold while it runs, and while tensors are made of arrays or read."""

    def weights(self, manifest: Manifest, progress: Callable[[float], None], /) -> list[Any]:
        """The weights in their order; ``progress`` is told the share that is there."""

    def zeros(self, shape: Sequence[int], dtype: str) -> Any:  # noqa: ANN401
        """A tensor of zeros."""

    def clear(self, tensor: Any) -> None:  # noqa: ANN401
        """Make all of a tensor zero again."""

    def tensor(self, name: str, array: Array, /) -> Any:  # noqa: ANN401
        """An input as a tensor, good until the next input of the same name."""

    def arrays(self, tensors: Sequence[Any]) -> list[Array]:
        """What tensors hold."""

    def write(self, tensor: Any, array: Array, /) -> None:  # noqa: ANN401
        """Put an array into a tensor."""

    def decoder(self, compiled: Compiled, manifest: Manifest, state: State, /) -> Decoder | None:
        """What draws the tokens of one text by itself, if anything does."""

    def refused(self, name: str, said: str) -> RunError:
        """What to raise when compiled code does not take a call."""


def open_device(manifest: Manifest, device: str | None) -> Processor:
    """The device that a model is to run on.

    Args:
        manifest: Of the model.
        device: ``cpu``, ``cuda``, ``cuda:1``; what the model was compiled for if None.

    Raises:
        BadUsage: If there is no such device.
        DoesNotFit: If the model was compiled for something else.
        MachineLacks: If the machine has not what the model needs.
    """
    compiled = manifest.target.get("kind")
    if compiled not in OTHER:
        raise MachineLacks(f"this loader runs models for CPUs and GPUs, not for {compiled!r:.40}")
    kind, index = parse_device(compiled if device is None else device)
    if kind != compiled:
        what, hint = OTHER[compiled]
        raise DoesNotFit(f"the model was compiled for {what}, not for {device}", hint=hint)
    return CudaGpu(manifest, index) if kind == "cuda" else Host(manifest)


def parse_device(name: str) -> tuple[str, int]:
    """The kind and the number of a device.

    Raises:
        BadUsage: If it is none.
    """
    match = NAME.fullmatch(name)
    if match is None:
        raise BadUsage(f"--device takes cpu, cuda or cuda:1, not {name!r:.40}")
    return name.partition(":")[0], int(match[1] or 0)
