"""Two checkpoints compared: as tables, and as JSON ``maxtool.diff-weights/1``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxtool.cli import units
from maxtool.cli.inspect.as_json import plain, tensor
from maxtool.cli.output import Output
from maxtool.cli.tables import Column, draw_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from maxtool.weights import TensorInfo
    from maxtool.weights.diff import Comparison, Difference
    from maxtool.weights.opened import Opened

SCHEMA = "maxtool.diff-weights/1"

CHANGED: tuple[Column, ...] = (("changed", "left"), ("first", "left"), ("second", "left"))
APART: tuple[Column, ...] = (
    ("values differ", "left"),
    ("largest", "right"),
    ("at", "right"),
    ("differing", "right"),
)


def show(out: Output, left: Opened, right: Opened, found: Comparison) -> None:
    """What differs, in tables, and one line that sums it up."""
    out.text(f"{left.location} (first), {right.location} (second)")
    out.text(_verdict(found))
    _show_one_sided(out, "only in the first", found.only_left)
    _show_one_sided(out, "only in the second", found.only_right)
    if found.changed:
        rows = [(one.name, _form(one), _form(other)) for one, other in found.changed]
        draw_names(out, CHANGED, rows)
    if apart := [one for one in found.differences if one.differing]:
        draw_names(out, APART, map(_row, apart))


def _verdict(found: Comparison) -> str:
    if found.equal:
        what = "name, type, shape and values" if found.differences else "name, type and shape"
        return f"equal in {what}: {units.plural(found.same, 'tensor')}"
    apart = sum(1 for one in found.differences if one.differing)
    counts = {
        "only in the first": len(found.only_left),
        "only in the second": len(found.only_right),
        "of another type or shape": len(found.changed),
        "with other values": apart,
        "equal in name, type and shape": found.same,
    }
    return "tensors: " + ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)


def _show_one_sided(out: Output, title: str, tensors: Sequence[TensorInfo]) -> None:
    if tensors:
        columns: tuple[Column, ...] = ((title, "left"), ("type and shape", "left"))
        draw_names(out, columns, [(one.name, _form(one)) for one in tensors])


def _form(one: TensorInfo) -> str:
    return f"{one.type_name} {units.shape(one.shape)}"


def _row(one: Difference) -> tuple[str, str, str, str]:
    at = "" if one.at is None else f"[{', '.join(map(str, one.at))}]"
    share = units.share(one.differing, one.elements)
    return one.name, f"{one.largest:.4g}", at, f"{units.count(one.differing)} ({share})"


def as_json(left: Opened, right: Opened, found: Comparison) -> dict[str, object]:
    """Everything that differs, and how far values lie apart if they were compared."""
    return {
        "first": left.location,
        "second": right.location,
        "equal": found.equal,
        "same": found.same,
        "only_first": [tensor(left, one) for one in found.only_left],
        "only_second": [tensor(right, one) for one in found.only_right],
        "changed": [
            {"name": one.name, "first": tensor(left, one), "second": tensor(right, other)}
            for one, other in found.changed
        ],
        "differences": [
            {
                "name": one.name,
                "largest": plain(one.largest),
                "at": None if one.at is None else list(one.at),
                "differing": one.differing,
                "elements": one.elements,
            }
            for one in found.differences
        ],
    }
