"""Compiled code and its weights on one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from .devices import open_device
from .errors import BadInput, MachineLacks
from .machine import open_module
from .manifest import Manifest
from .memory import Array
from .processor import Compiled, Progress, State, TextMemory
from .specs import EntrySpec


class Execution:
    """A model loaded on one device, as :func:`devices.open_device` names it.

    ``verified`` files are known to be those that were compiled; ``progress`` is told the share of
    the weights that is in the memory of the device.
    """

    def __init__(
        self, manifest: Manifest, *, verified: bool, device: str | None, progress: Progress
    ) -> None:
        self._manifest = manifest
        self.processor = open_device(manifest, device)
        machine, library = open_module(manifest, self.processor, verified=verified)
        import tvm_ffi  # which is there by now

        functions = {name: self._function(machine, e) for name, e in manifest.entries.items()}
        weights = tvm_ffi.Array(self.processor.weights(manifest, progress))
        self._compiled = Compiled(machine, functions, weights, library)
        self._idle: TextMemory | None = None

    def _function(self, machine: Any, entry: EntrySpec) -> Any:  # noqa: ANN401
        try:
            function = machine.get_function(entry.function)
        except (AttributeError, RuntimeError):
            function = None
        if function is None:
            what = f"the code has no function {entry.function!r:.80}"
            raise BadInput(what, file=self._manifest.module)
        return function

    def new_state(self, dims: Mapping[str, int]) -> State:
        """Zeroed state for the given sizes of named dimensions."""
        manifest = self._manifest
        device, kept = [self.processor], manifest.kept_positions
        shape = manifest.state, dims, kept, manifest.batch
        make = partial(State, device, *shape, is_recurrent=manifest.is_recurrent)
        try:
            return make()
        except MachineLacks:
            if self._idle is None:
                raise
        self._idle = None  # what waits for the next text may have room for this one
        return make()

    def text_memory(self) -> TextMemory:
        """The memory of one text: that of a text that is over, if there is any."""
        with self._compiled.lock:  # never to two threads
            memory, self._idle = self._idle, None
        if memory is not None:
            memory.state.clear()
            return memory
        state = self.new_state({"batch": 1})
        return TextMemory(state, self.processor.decoder(self._compiled, self._manifest, state))

    def give_back(self, memory: TextMemory) -> None:
        """Keep the memory of a text that is over for the next one, where that saves work."""
        if memory.decoder is not None:
            self._idle = memory

    def call(self, name: str, inputs: Mapping[str, Array], memory: Sequence[Any]) -> list[Array]:
        """The outputs of compiled code, in its order."""
        compiled = self._compiled
        try:
            with compiled.lock, self.processor.running():
                tensors = [self.processor.tensor(*arguments) for arguments in inputs.items()]
                result = compiled.functions[name](*tensors, *memory, compiled.weights)
                return self.processor.arrays([result] if hasattr(result, "shape") else list(result))
        except (RuntimeError, ValueError, TypeError, LookupError) as error:
            raise self.processor.refused(name, str(error)) from None
