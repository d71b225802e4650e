"""The page of ``inspect-weights --diff``: what differs, by role and layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from maxtool.cli import units
from maxtool.cli.pages.differences import error_map, error_tiles
from maxtool.cli.pages.heatmap import Cell, Cells, heatmap
from maxtool.cli.pages.markup import Markup
from maxtool.cli.pages.page import document, legend, section
from maxtool.weights.names import selected
from maxtool.weights.roles import layer_of, numbered

if TYPE_CHECKING:
    from maxtool.weights import TensorInfo
    from maxtool.weights.diff import Comparison
    from maxtool.weights.opened_checkpoint import OpenedCheckpoint

# States of a tensor, what matters most last, with the class of their colour.
EQUAL, TYPE, SHAPE = "equal in name, type and shape", "of another type", "of another shape"
FIRST, SECOND = "only in the first", "only in the second"
STATES: Mapping[str, str] = {EQUAL: "none", TYPE: "t4", SHAPE: "t5", FIRST: "t0", SECOND: "t2"}


def page(
    left: OpenedCheckpoint, right: OpenedCheckpoint, comparison: Comparison, pattern: str | None
) -> str:
    """The page of two checkpoints."""
    states = dict(_states(left, right, comparison, pattern))
    sections = [_by_layer(states)]
    if comparison.differences:
        sections += [error_map(comparison.differences), error_tiles(comparison.differences)]
    facts = [f"{right.name} (second), compared with {left.name} (first)"]
    return document(f"{left.name} and {right.name}", facts, sections)


def _states(
    left: OpenedCheckpoint, right: OpenedCheckpoint, comparison: Comparison, pattern: str | None
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each tensor's name with its state, and with a line on it."""
    changed = {one.name: (one, other) for one, other in comparison.changed}
    first, second = left.checkpoint.tensors, right.checkpoint.tensors
    for name in selected(dict.fromkeys([*first, *second]), pattern):
        if name in changed:
            one, other = changed[name]
            state = TYPE if one.shape == other.shape else SHAPE
            yield name, (state, f"{_form(one)}, {_form(other)}")
        elif name not in second:
            yield name, (FIRST, _form(first[name]))
        elif name not in first:
            yield name, (SECOND, _form(second[name]))
        else:
            yield name, (EQUAL, _form(first[name]))


def _form(info: TensorInfo) -> str:
    return f"{info.type_name} {units.shape(info.shape)}"


def _by_layer(states: Mapping[str, tuple[str, str]]) -> Markup:
    """The heat map of states."""
    counts = Counter(state for state, _ in states.values())
    entries = [
        (class_, state, units.plural(counts[state], "tensor"))
        for state, class_ in STATES.items()
        if counts[state]
    ]
    what = "What names, types and shapes say. A row is a role, a column a layer (- is none)."
    picture = heatmap(_cells(states), name="states by layer")
    return section("Tensors by layer", what, legend(entries), picture)


def _cells(states: Mapping[str, tuple[str, str]]) -> Cells:
    """A cell for each role and layer: of several tensors that of the state that matters most."""
    rank = {state: index for index, state in enumerate(STATES)}
    cells: dict[tuple[str, int | None], Cell] = {}
    highest: dict[tuple[str, int | None], int] = {}
    for name, (state, form) in states.items():
        key = numbered(name)[0], layer_of(name)
        if rank[state] > highest.get(key, -1):
            highest[key] = rank[state]
            cells[key] = Cell([name, state, form], class_=STATES[state])
    return cells
