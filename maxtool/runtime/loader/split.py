"""A model that was compiled for several devices: a part of the weights on each, calls on all."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from .collectives import ALONE, DeviceGroup, register
from .devices import parse_device
from .errors import BadUsage
from .execution import Execution
from .manifest import Manifest
from .memory import Array
from .processor import Progress, State, TextMemory


class SplitExecution:
    """A model whose parts run on several devices at the same time, each in a thread of its own.

    Logits are picked from on the host. Arguments as for :class:`Execution`; ``device`` names the
    type of device, of which the first ones are taken. The processor is the first device.
    """

    def __init__(
        self, manifest: Manifest, *, verified: bool, device: str | None, progress: Progress
    ) -> None:
        register()  # compiled code looks for its functions when it is loaded
        self._manifest, names = manifest, _devices(manifest, device)
        self._members: list[Execution] = []
        for rank, name in enumerate(names):
            shown = partial(_shown, progress, rank, len(names))
            part = copy.copy(manifest)  # what one device has
            part.weights_file = manifest.weights_files[rank]
            member = Execution(part, verified=verified, device=name, progress=shown)
            self._members.append(member)
        self.processor = self._members[0].processor
        self._group = DeviceGroup([member.processor for member in self._members])
        # TVM's threads belong to the thread that calls: one that stays keeps them.
        self._threads = [ThreadPoolExecutor(1) for _ in self._members]
        self._one_call = threading.Lock()

    def new_state(self, dims: Mapping[str, int]) -> State:
        """Zeroed state on every device."""
        processors, manifest = [member.processor for member in self._members], self._manifest
        kept = manifest.kept_positions
        shape = manifest.state, dims, kept, manifest.batch
        return State(processors, *shape, is_recurrent=manifest.is_recurrent)

    def text_memory(self) -> TextMemory:
        """The memory of one text; tokens are picked on the host, where the devices meet anyway."""
        return TextMemory(self.new_state({"batch": 1}), None)

    def give_back(self, memory: TextMemory) -> None:
        """Drop the memory of a text that is over: making it anew is no more work."""

    def call(self, name: str, inputs: Mapping[str, Array], memory: Sequence[Any]) -> list[Array]:
        """The outputs of the first device, which are those of all."""
        with self._one_call:
            self._group.begin()
            done = [
                thread.submit(self._on, rank, name, inputs, memory[rank : rank + 1])
                for rank, thread in enumerate(self._threads)
            ]
            try:
                wait(done)
            finally:  # a call that is interrupted ends on all devices before the next begins
                wait(done)
        return _first(done)

    def _on(
        self, rank: int, name: str, inputs: Mapping[str, Array], memory: Sequence[Any]
    ) -> list[Array]:
        with self._group.joined(rank):
            return self._members[rank].call(name, inputs, memory)


def _devices(manifest: Manifest, device: str | None) -> list[str | None]:
    """The name of each device, of which none may be named by its number."""
    count = manifest.devices
    device_kind = str(manifest.target.get("kind")) if device is None else parse_device(device)[0]
    if device is not None and ":" in device:
        hint = f"give {device_kind}, which takes the first ones"
        raise BadUsage(f"the model is for {count} devices, not for {device}", hint=hint)
    return [
        device_kind if device_kind == "cpu" else f"{device_kind}:{rank}" for rank in range(count)
    ]


def _shown(progress: Progress, rank: int, count: int, share: float) -> None:
    """Tell the share of all weights, of which one device has this share of its own."""
    progress((rank + share) / count)


def _first(done: Sequence[Future[list[Array]]]) -> list[Array]:
    """The first result; an error, if there is one, that is not about the error of another."""
    errors = [error for task in done if (error := task.exception()) is not None]
    causes = [error for error in errors if ALONE not in str(error)]
    for error in (*causes, *errors):
        raise error
    return done[0].result()
