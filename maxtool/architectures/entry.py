"""What an architecture offers to compile: functions with named inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from maxtool.graph import BufferType, TensorType


@dataclass(frozen=True, eq=False)
class Entry:
    """One function of an artifact.

    Attributes:
        name: Its name: ``forward``, ``prefill``, ``decode``.
        function: Takes a tensor for each input and each state, and returns the outputs.
        inputs: The inputs by the name users give, in order.
        outputs: The names of the outputs, in order.
        state: Buffers that calls share and write in place, by name.
    """

    name: str
    function: Callable[..., Any]
    inputs: Mapping[str, TensorType]
    outputs: tuple[str, ...]
    state: Mapping[str, BufferType] = field(default_factory=dict)

    @property
    def types(self) -> list[TensorType]:
        """The types of all arguments, inputs first."""
        return [*self.inputs.values(), *self.state.values()]
