"""Interface of an architecture: entries with named inputs and outputs, and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from maxtool.graph import BufferType, Graph, TensorType, Weight
from maxtool.nn import Module
from maxtool.nn.tracing import trace

# The largest size of a named dimension, or the least and largest value of an input.
Limit: TypeAlias = int | tuple[int, int]


@dataclass(frozen=True, eq=False)
class Entry:
    """One function of an artifact.

    Attributes:
        name: Its name: ``forward``, ``prefill``, ``decode``, ``sample_prefill``, ``sample_decode``,
            ``embed``.
        function: Takes a tensor for each input and each state, and returns the outputs.
        inputs: The inputs by the name users give, in order.
        outputs: The names of the outputs, in order.
        state: Buffers that calls share and write in place, by name. Entries that need fewer of
            them have the first.
        follows: The entry that a recipe names to have this one, too, where it is another.
        defaults: What inputs that need not be given are full of, by name.
        usual: Sizes of named dimensions that most calls have, which are worth code of their own.
    """

    name: str
    function: Callable[..., Any]
    inputs: Mapping[str, TensorType]
    outputs: tuple[str, ...]
    state: Mapping[str, BufferType] = field(default_factory=dict)
    follows: str | None = None
    defaults: Mapping[str, int] = field(default_factory=dict)
    usual: Mapping[str, int] = field(default_factory=dict)

    @property
    def types(self) -> list[TensorType]:
        """The types of all arguments, inputs first."""
        return [*self.inputs.values(), *self.state.values()]


@dataclass(frozen=True)
class Table:
    """A weight of which rows are read by number, which compiled code does not check.

    The loader refuses an artifact whose limits reach beyond its last row.

    Attributes:
        weight: The full name.
        index: The input that has the numbers; ``context`` where they are positions.
        skipped: Rows before that of number 0.
    """

    weight: str
    index: str
    skipped: int = 0


class Architecture(Protocol):
    """A model that can be compiled into an artifact: a ``nn.Module`` that names its entries."""

    @property
    def context(self) -> int | None:
        """Positions it is built for; None where there are none."""

    @property
    def facts(self) -> Mapping[str, object]:
        """Facts for the manifest, as JSON values: sizes such as ``n_layers``, options."""

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Limits that a caller must respect, by the name of a dimension or of an input.

        Compiled code does not check it; the artifact's loader does, before each call.
        """

    def entries(self) -> tuple[Entry, ...]:
        """The functions of the artifact."""

    def raw_state_dict(self) -> dict[str, Weight]:
        """Return the weights by the names that recipes use."""


@runtime_checkable
class Indexed(Protocol):
    """An architecture with weights of which rows are read by number."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The weights that are read by row number, whether or not an entry needs them."""


@runtime_checkable
class Turning(Protocol):
    """An architecture that computes longer sequences otherwise than shorter ones."""

    @property
    def turns(self) -> tuple[int, ...]:
        """Lengths, ascending, beyond which it does: windows, and contexts.

        A context is one that the scaling of rotary positions looks at.
        """


@runtime_checkable
class Caching(Protocol):
    """An architecture whose entries keep something of each position of a text."""

    @property
    def positions(self) -> Mapping[str, int]:
        """The axis of positions of each buffer of the state that has one, by name."""


def graph_of(module: Architecture, entry: Entry) -> Graph:
    """The graph of one of the functions of a module."""
    return trace(cast("Module", module), entry.name, entry.types, entry.function)
