"""Entries of a compiled model, as functions of arrays by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import DoesNotFit
from .execution import Execution
from .inputs import InputBinder
from .manifest import Manifest
from .memory import Array, named
from .processor import Progress, State, TextMemory
from .specs import ENCODE, SOURCE_LENGTH, EntrySpec
from .text_entries import check_position, ids_of, reads_source, spans_of

if TYPE_CHECKING:
    from .split import SplitExecution


class EntryRunner:
    """A compiled model without its texts: entries, state, and the checks of what they are given.

    Attributes:
        manifest: Of the artifact.
        processor: The device that runs it, the first one if there are several.
        binder: The checks of its inputs.
    """

    def __init__(
        self, manifest: Manifest, *, verified: bool, device: str | None, progress: Progress
    ) -> None:
        """Load the code and the weights of a manifest that was read; see :func:`model.load`."""
        opened = _execution(manifest.devices)
        self._execution = opened(manifest, verified=verified, device=device, progress=progress)
        self.manifest, self.processor = manifest, self._execution.processor
        self.binder = InputBinder(manifest)

    def __call__(self, **arrays: object) -> dict[str, Array]:
        """Run ``forward``."""
        return self.run("forward", arrays)

    def entry(self, name: str) -> EntrySpec:
        """An entry by name; raises ``DoesNotFit`` that lists those there are."""
        if name not in self.manifest.entries:
            known = ", ".join(self.manifest.entries)
            raise DoesNotFit(f"the model has no entry {name!r}", hint=f"it has {known}")
        return self.manifest.entries[name]

    def new_state(self, **dims: int) -> State:
        """Zeroed state for the given sizes of named dimensions, such as ``batch=1``."""
        return self._execution.new_state(dims)

    def text_memory(self) -> TextMemory:
        """The memory of one text: that of a text that is over, if there is any."""
        return self._execution.text_memory()

    def give_back(self, memory: TextMemory) -> None:
        """Keep the memory of a text that is over for the next one, where that saves work."""
        self._execution.give_back(memory)

    def run(
        self, name: str, arrays: Mapping[str, object], state: State | None = None
    ) -> dict[str, Array]:
        """Run an entry.

        Args:
            name: The entry.
            arrays: Inputs by name. An integer or float type is widened where nothing is lost.
            state: Memory from :meth:`new_state`; fresh zeros where the entry needs it and has none.

        Raises:
            BadInput: If an array is missing, unknown, or of another type or shape.
            DoesNotFit: If sizes or values go beyond the model's limits, or the state is another's,
                or holds no more what the tokens look back at.
        """
        entry = self.entry(name)
        inputs, dims = self.binder.bind(entry, arrays)
        check_position(self.manifest, entry, inputs)
        memory: Sequence[Any] = ()
        if entry.state:
            memory = self._extended(self._fitting(state, dims), entry, inputs)
        return named(entry, self._execution.call(name, inputs, memory), dims)

    def _extended(
        self, state: State, entry: EntrySpec, inputs: Mapping[str, Array]
    ) -> Sequence[Any]:
        """The parts of a state that a call is going to write from its position on."""
        ids = ids_of(entry)
        if reads_source(self.manifest, entry):
            state.take_source(None if ids is None else int(inputs[ids.name].shape[1]))
            return state.parts
        if ENCODE in self.manifest.entries and not state.has_source:
            what = "the state holds no source that a text could follow"
            raise DoesNotFit(what, hint=f"run {ENCODE!r} on it first")
        said = int(inputs[SOURCE_LENGTH][0]) if SOURCE_LENGTH in inputs else state.source_length
        if said != state.source_length:
            what = f"{SOURCE_LENGTH} is {said}, and the source has {state.source_length} tokens"
            raise DoesNotFit(what)
        spans = spans_of(entry, inputs)
        for slot, first, _ in spans:
            if not state.holds_before(first, slot):
                holds = self._held(state.lengths[slot])
                what = f"{holds}: nothing can be read at position {first}"
                raise DoesNotFit(what, hint="begin at position 0 again, or with a new state")
        for slot, _, end in spans:
            state.lengths[slot] = end
        return state.parts

    def _held(self, length: int) -> str:
        """Describe what a state holds of a text, where that is not each of its positions."""
        if self.manifest.is_recurrent:
            return f"layers hold a state of all {length} tokens, which go on behind them"
        kept = f"the last {self.manifest.kept_positions} of {length} positions"
        return f"layers with a window hold {kept}"

    def _fitting(self, state: State | None, dims: Mapping[str, int]) -> State:
        """The state given, which must be of this model and these sizes; new memory if None."""
        if state is None:
            return self.new_state(**dims)
        if state.specs is not self.manifest.state or not state.dims.items() <= dims.items():
            raise DoesNotFit(f"the state is of another model, or of other sizes: {state.dims}")
        return state


def _execution(devices: int) -> type[Execution | SplitExecution]:
    """Choose what runs a model on so many devices."""
    if devices == 1:
        return Execution
    from .split import SplitExecution

    return SplitExecution
