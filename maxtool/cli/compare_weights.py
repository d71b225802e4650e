"""``maxtool compare`` of checkpoints: how far the values of their tensors lie apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maxtool.cli import units
from maxtool.cli.inspect.as_json import apart, distance, plain
from maxtool.cli.output import Output
from maxtool.cli.pages.page_file import Page
from maxtool.errors import NegativeAnswer, UsageError

if TYPE_CHECKING:
    from maxtool.cli.tables import Column, Label, Row
    from maxtool.weights import Checkpoint
    from maxtool.weights.distance import Distance
    from maxtool.weights.pairing import Difference, Pairing, Storage
    from maxtool.weights.roles import Group

SCHEMA = "maxtool.compare-weights/1"
ARROW = "\N{RIGHTWARDS ARROW}"
MEASURES: tuple[Column, ...] = (
    ("bits", "right"),
    ("RMSE", "right"),
    ("error", "right"),
    ("largest", "right"),
    ("cosine", "right"),
)
TENSORS: tuple[Column, ...] = (("tensor", "left"), ("type", "left"), *MEASURES)
TOTALS: tuple[Column, ...] = (("candidate", "left"), *MEASURES)
# Orders of lines by what is measured of them.
SORTS: Mapping[str, Callable[[Distance], float]] = {
    "error": lambda total: -total.relative,
    "rmse": lambda total: -total.rmse,
    "largest": lambda total: -total.largest,
    "size": lambda total: -total.elements,
}


@dataclass(frozen=True, slots=True)
class TensorOptions:
    """Options of the command that are about tensors."""

    pattern: str | None = None
    flat: bool = False
    sort: str | None = None
    max_error: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """A candidate, held against the reference."""

    checkpoint: Checkpoint
    pairing: Pairing
    differences: tuple[Difference, ...]

    @property
    def total(self) -> Distance:
        """The distance of all pairs of tensors together."""
        return _together(self.differences)

    def exceeds(self, limit: float) -> bool:
        """Return whether a tensor is further off than a limit, or has no counterpart."""
        alone = (*self.pairing.only_first, *self.pairing.only_second, *self.pairing.misshapen)
        return bool(alone) or any(not one.distance.relative <= limit for one in self.differences)


def compare_weights(out: Output, paths: Sequence[Path], asked: TensorOptions, page: Page) -> None:
    """Compare the tensors of checkpoints with those of the first."""
    from typer import Exit

    from maxtool.weights import open_checkpoint

    if asked.sort is not None and asked.sort not in SORTS:
        raise UsageError(f"--sort {asked.sort!r:.80} is not one of {', '.join(SORTS)}")
    opened = [open_checkpoint(path) for path in paths]
    for note in (note for checkpoint in opened for note in checkpoint.notes):
        out.warn(note)
    reference, *candidates = opened
    compared = [_measured(out, reference, other, asked.pattern) for other in candidates]
    if page.wanted:
        _picture(page, reference, compared)
    if out.json_mode:
        out.data(SCHEMA, _as_json(reference, compared))
    else:
        _show(out, reference, compared, asked)
    limit = asked.max_error
    if limit is not None and any(one.exceeds(limit) for one in compared):
        raise Exit(NegativeAnswer.exit_code)


def _measured(
    out: Output, reference: Checkpoint, other: Checkpoint, pattern: str | None
) -> Compared:
    """Pair the tensors of two checkpoints, and measure how far each pair lies apart."""
    from maxtool.conversion.dialect_pairing import paired

    pairing = paired(reference, other, pattern)
    if pattern is not None and not pairing.pairs and not pairing.misshapen:
        raise NegativeAnswer(f"no tensor's name matches {pattern!r}", file=reference.path)
    with out.progress("comparing", sum(pair.nbytes for pair in pairing.pairs)) as advance:
        differences = tuple(pair.measure(advance) for pair in pairing.pairs)
    for checkpoint in (reference, other):
        checkpoint.check_unchanged()
    return Compared(other, pairing, differences)


def _together(differences: Iterable[Difference]) -> Distance:
    from maxtool.weights.distance import Distance

    return sum((one.distance for one in differences), Distance())


# --- tables --------------------------------------------------------------------------------------


def _show(
    out: Output, reference: Checkpoint, compared: Sequence[Compared], asked: TensorOptions
) -> None:
    """Draw a table for each candidate, and where there are several, one with the totals."""
    from maxtool.cli.tables import draw_names

    for one in compared:
        out.gap()
        out.text(f"{reference.path} (first), {one.checkpoint.path} (second)")
        _say_pairing(out, one.pairing)
        _draw(out, one, asked)
    if len(compared) > 1:
        rows = [(str(one.checkpoint.path), *_totals(one)) for one in compared]
        draw_names(out, TOTALS, rows)


def _say_pairing(out: Output, pairing: Pairing) -> None:
    """Say how tensors were paired, and which could not be."""
    if pairing.recipe is not None:
        out.note(f"tensors are paired by the recipe {pairing.recipe}, names are the first's")
    for note in pairing.notes:
        out.note(f"tensors are paired by their names alone: {note}")
    for title, names in (
        ("only in the first", pairing.only_first),
        ("only in the second", pairing.only_second),
    ):
        for name in names:
            out.text(f"{title}: {name}")
    for name, one, other in pairing.misshapen:
        out.text(f"of another shape: {name} {units.shape(one)}, {units.shape(other)}")


def _draw(out: Output, compared: Compared, asked: TensorOptions) -> None:
    """Draw the table of a candidate: tensors, layers alike together, and all of them."""
    from maxtool.cli.tables import Label, draw_labels

    lines = [(group, _together(group.items)) for group in _groups(compared, flat=asked.flat)]
    if asked.sort is not None:
        key = SORTS[asked.sort]
        lines.sort(key=lambda line: key(line[1]))
    rows: list[Row] = [(_label(group), *_cells(group.items[0], total)) for group, total in lines]
    totals = ("", *_totals(compared))
    draw_labels(out, TENSORS, [*rows, (Label("all tensors"), *totals)])


def _groups(compared: Compared, *, flat: bool) -> list[Group[Difference]]:
    """The lines of a table: tensors of one role and equal types, or each tensor."""
    from maxtool.weights.roles import Group, groups

    if flat:
        return [Group(one.name, (one,)) for one in compared.differences]

    def kind(one: Difference) -> object:
        return one.first, one.second, one.shape

    return groups(compared.differences, lambda one: one.name, kind)


def _label(group: Group[Difference]) -> Label:
    """The label of a line, with a number where it does not tell the layers itself."""
    from maxtool.cli.tables import Label
    from maxtool.weights.roles import ANY

    untold = ANY in group.label.split(".")
    return Label(group.label, after=f" ({units.TIMES}{len(group.items)})" if untold else "")


def _cells(one: Difference, total: Distance) -> tuple[str, ...]:
    return _types(one.first, one.second), f"{one.second.bits:.2f}", *_measures(total)


def _types(first: Storage, second: Storage) -> str:
    return first.types if first.types == second.types else f"{first.types}{ARROW}{second.types}"


def _totals(compared: Compared) -> tuple[str, ...]:
    return f"{_bits(compared)[1]:.2f}", *_measures(compared.total)


def _bits(compared: Compared) -> tuple[float, float]:
    """Bits per weight of the tensors that were compared, in the first and in the second."""
    from maxtool.weights.pairing import bits_per_weight

    differences = compared.differences
    return (
        bits_per_weight((one.shape, one.first) for one in differences),
        bits_per_weight((one.shape, one.second) for one in differences),
    )


def _measures(total: Distance) -> tuple[str, str, str, str]:
    return (
        _digits(total.rmse),
        _percent(total.relative),
        _digits(total.largest),
        "-" if total.cosine is None else f"{total.cosine:.6f}",
    )


def _percent(share: float) -> str:
    return f"{_digits(100 * share)}%" if share and math.isfinite(share) else _digits(share)


def _digits(value: float) -> str:
    """A number with three digits."""
    return f"{value:#.3g}".rstrip(".") if value else "0"


def _picture(page: Page, reference: Checkpoint, compared: Sequence[Compared]) -> None:
    """Draw the page, on which checkpoints are called by the last part of their paths."""
    from maxtool.cli.pages import weights_page

    names = [one.checkpoint.path.resolve().name for one in compared]
    rows = [(name, *_totals(one)) for name, one in zip(names, compared, strict=True)]
    candidates = [
        (name, _bits(one)[1], one.total.relative, one.differences)
        for name, one in zip(names, compared, strict=True)
    ]
    name = reference.path.resolve().name
    page.write(weights_page.page(name, TOTALS, rows, candidates))


# --- JSON ----------------------------------------------------------------------------------------


def _as_json(reference: Checkpoint, compared: Sequence[Compared]) -> dict[str, object]:
    return {"first": str(reference.path), "comparisons": [_comparison(one) for one in compared]}


def _comparison(one: Compared) -> dict[str, object]:
    pairing = one.pairing
    first, second = _bits(one)
    return {
        "second": str(one.checkpoint.path),
        "recipe": pairing.recipe,
        "only_first": list(pairing.only_first),
        "only_second": list(pairing.only_second),
        "misshapen": [
            {"name": name, "first": list(ours), "second": list(theirs)}
            for name, ours, theirs in pairing.misshapen
        ],
        "tensors": [_tensor(difference) for difference in one.differences],
        "total": {
            "first": {"bits_per_weight": first},
            "second": {"bits_per_weight": second},
            **apart(one.total),
        },
    }


def _tensor(one: Difference) -> dict[str, object]:
    return {
        "name": one.name,
        "shape": list(one.shape),
        "first": _storage(one.first),
        "second": _storage(one.second),
        **distance(one),
    }


def _storage(storage: Storage) -> dict[str, object]:
    return {"type": storage.types, "bits_per_weight": plain(storage.bits)}
