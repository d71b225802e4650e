"""Pictures of how far the tensors of two checkpoints lie apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from maxtool.cli import units
from maxtool.cli.pages.clusters import clustered
from maxtool.cli.pages.heatmap import Cell, Cells, color, heatmap, ink, ramp, scale
from maxtool.cli.pages.markup import Markup
from maxtool.cli.pages.page import section
from maxtool.cli.pages.treemap import Tile, treemap
from maxtool.weights.distance import Distance
from maxtool.weights.roles import groups, layer_of, numbered, parted

if TYPE_CHECKING:
    from maxtool.weights.pairing import Difference

READ = "The colour is the relative error, on a logarithmic scale: the RMSE, divided by the root"


def error_map(differences: Sequence[Difference]) -> Markup:
    """The heat map of relative errors by role and layer."""
    cells = error_cells(differences)
    what = f"{READ} mean square of the first. A row is a role, a column a layer (- is none)."
    return section("Differences by layer", what, legend_of(cells), heatmap(cells, name="errors"))


def error_tiles(differences: Sequence[Difference]) -> Markup:
    """The treemap of the second checkpoint, coloured by what its bytes cost."""
    cells = error_cells(differences)
    tiles = partial(_tiles, ends=scale(cells))
    clusters = clustered(differences, lambda one: one.name, tiles)
    what = f"Each area is the bytes of a tensor in the second. {READ} mean square of the first."
    return section(
        "Differences by bytes", what, legend_of(cells), treemap(clusters, label="errors by bytes")
    )


def error_cells(differences: Sequence[Difference]) -> Cells:
    """A cell for each role and layer, with its tensors (such as experts) together."""
    alike: dict[tuple[str, int | None], list[Difference]] = {}
    for one in differences:
        alike.setdefault((numbered(one.name)[0], layer_of(one.name)), []).append(one)
    return {key: Cell(described(group), _together(group).relative) for key, group in alike.items()}


def legend_of(cells: Cells) -> Markup:
    """The legend of the colours of relative errors."""
    low, high = scale(cells)
    return ramp(f"{100 * low:.3g}%", f"{100 * high:.3g}%", "nothing differs")


def described(group: Sequence[Difference]) -> list[str]:
    """The tooltip of some tensors of one role: what they are, and how far apart."""
    first, total = group[0], _together(group)
    times = f" ({units.TIMES}{len(group)})" if len(group) > 1 else ""
    cosine = "" if total.cosine is None else f", cosine {total.cosine:.6f}"
    types = dict.fromkeys(one.second.types for one in group)
    shape, bits = units.shape(first.shape), f"{first.second.bits:.2f} bits per weight"
    return [
        first.name + times,
        f"{shape}, {first.first.types} to {' '.join(types)}, {bits}",
        f"relative error {100 * total.relative:.3g}%, RMSE {total.rmse:.3g}",
        f"largest {total.largest:.3g}{cosine}",
    ]


def _together(group: Sequence[Difference]) -> Distance:
    return sum((one.distance for one in group), Distance())


def _tiles(members: Sequence[Difference], ends: tuple[float, float]) -> Iterator[Tile]:
    def kind(one: Difference) -> object:
        return one.second, one.shape

    for group in groups(members, lambda one: one.name, kind):
        first, total = group.items[0], _together(group.items)
        fill = color(total.relative, ends)
        size = sum(one.distance.elements * one.second.bits / 8 for one in group.items)
        yield Tile(
            parted(first.name)[1],
            size,
            described(group.items),
            class_="none" if fill is None else None,
            fill=fill,
            facts=f"{first.second.types} {100 * total.relative:.3g}%",
            ink=ink(total.relative, ends),
        )
