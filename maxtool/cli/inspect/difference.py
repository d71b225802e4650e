"""Two checkpoints compared: as tables, and as JSON ``maxtool.diff-weights/1``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxtool.cli import units
from maxtool.cli.inspect.as_json import distance, tensor
from maxtool.cli.output import Output
from maxtool.cli.tables import Column, draw_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from maxtool.weights import TensorInfo
    from maxtool.weights.diff import Comparison
    from maxtool.weights.opened_checkpoint import OpenedCheckpoint
    from maxtool.weights.pairing import Difference

SCHEMA = "maxtool.diff-weights/1"

CHANGED: tuple[Column, ...] = (("changed", "left"), ("first", "left"), ("second", "left"))
APART: tuple[Column, ...] = (
    ("values differ", "left"),
    ("RMSE", "right"),
    ("largest", "right"),
    ("at", "right"),
    ("differing", "right"),
)


def show(
    out: Output, left: OpenedCheckpoint, right: OpenedCheckpoint, comparison: Comparison
) -> None:
    """Print the differences in tables, and one line that sums them up."""
    out.text(f"{left.location} (first), {right.location} (second)")
    out.text(_verdict(comparison))
    _show_one_sided(out, "only in the first", comparison.only_left)
    _show_one_sided(out, "only in the second", comparison.only_right)
    if comparison.changed:
        rows = [(one.name, _form(one), _form(other)) for one, other in comparison.changed]
        draw_names(out, CHANGED, rows)
    if apart := [one for one in comparison.differences if one.distance.differing]:
        draw_names(out, APART, map(_row, apart))


def _verdict(comparison: Comparison) -> str:
    if comparison.equal:
        what = "name, type, shape and values" if comparison.differences else "name, type and shape"
        return f"equal in {what}: {units.plural(comparison.same, 'tensor')}"
    apart = sum(1 for difference in comparison.differences if difference.distance.differing)
    counts = {
        "only in the first": len(comparison.only_left),
        "only in the second": len(comparison.only_right),
        "of another type or shape": len(comparison.changed),
        "with other values": apart,
        "equal in name, type and shape": comparison.same,
    }
    return "tensors: " + ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)


def _show_one_sided(out: Output, title: str, tensors: Sequence[TensorInfo]) -> None:
    if tensors:
        columns: tuple[Column, ...] = ((title, "left"), ("type and shape", "left"))
        draw_names(out, columns, [(info.name, _form(info)) for info in tensors])


def _form(info: TensorInfo) -> str:
    return f"{info.type_name} {units.shape(info.shape)}"


def _row(difference: Difference) -> tuple[str, str, str, str, str]:
    distance = difference.distance
    at = "" if difference.at is None else f"[{', '.join(map(str, difference.at))}]"
    share = units.share(distance.differing, distance.elements)
    return (
        difference.name,
        f"{distance.rmse:.3g}",
        f"{distance.largest:.4g}",
        at,
        f"{units.count(distance.differing)} ({share})",
    )


def as_json(
    left: OpenedCheckpoint, right: OpenedCheckpoint, comparison: Comparison
) -> dict[str, object]:
    """Return all differences as JSON values, with the distances of values if they were compared."""
    return {
        "first": left.location,
        "second": right.location,
        "equal": comparison.equal,
        "same": comparison.same,
        "only_first": [tensor(left, one) for one in comparison.only_left],
        "only_second": [tensor(right, one) for one in comparison.only_right],
        "changed": [
            {"name": one.name, "first": tensor(left, one), "second": tensor(right, other)}
            for one, other in comparison.changed
        ],
        "differences": [
            {"name": difference.name, **distance(difference)}
            for difference in comparison.differences
        ],
    }
