"""The page of ``inspect-weights``: tensors by their bytes, and what their values are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from maxtool.cli import units
from maxtool.cli.inspect.overview import totals
from maxtool.cli.pages.charts import curve, histogram, number
from maxtool.cli.pages.clusters import clustered
from maxtool.cli.pages.markup import Markup
from maxtool.cli.pages.page import TYPES, document, figure, figures, legend, section
from maxtool.cli.pages.treemap import Tile, treemap
from maxtool.weights.roles import groups, layer_of, numbered, parted

if TYPE_CHECKING:
    from maxtool.weights import TensorInfo
    from maxtool.weights.inspection import Inspection
    from maxtool.weights.summary import Total

# Histograms of a page, those of the largest tensors; a picture of each takes some 2 kB.
MOST_HISTOGRAMS = 400
# Layers that a curve begins with.
FEWEST_LAYERS = 3


def page(inspection: Inspection) -> str:
    """The page of a checkpoint."""
    summary = inspection.summary
    facts = [totals(inspection.opened, summary)]
    sections = [by_bytes(summary.tensors, summary.by_type)]
    if inspection.stats:
        sections += [*_spread(inspection), _values(inspection)]
    return document(inspection.opened.name, facts, sections)


def by_bytes(tensors: Sequence[TensorInfo], by_type: Mapping[str, Total]) -> Markup:
    """The treemap of tensors by bytes, a colour for each type."""
    classes = type_classes(by_type)
    whole = sum(total.nbytes for total in by_type.values())
    entries = [
        (classes[name], name, f"{units.binary_size(total.nbytes)}, {total.tensors:,} tensors")
        for name, total in by_type.items()
    ]
    tiles = partial(_tiles, classes=classes, whole=whole)
    clusters = clustered(tensors, lambda one: one.name, tiles)
    what = "Each area is the bytes that a tensor takes in the file; colours are types."
    picture = treemap(clusters, label="tensors by bytes")
    return section("Bytes", what, legend(entries), picture)


def type_classes(types: Iterable[str]) -> dict[str, str]:
    """The class of each type's colour; the rarest of many share the last."""
    return {name: TYPES[min(rank, len(TYPES) - 1)] for rank, name in enumerate(types)}


def _tiles(tensors: Sequence[TensorInfo], classes: Mapping[str, str], whole: int) -> Iterator[Tile]:
    for group in groups(tensors, lambda one: one.name, lambda one: (one.type_name, one.shape)):
        first, nbytes = group.items[0], sum(one.nbytes for one in group.items)
        times = f"{len(group.items)} {units.TIMES} " if len(group.items) > 1 else ""
        size = f"{units.binary_size(nbytes)}, {units.share(nbytes, whole)}"
        title = (group.label, f"{times}{first.type_name} {units.shape(first.shape)}", size)
        facts = f"{first.type_name} {units.binary_size(nbytes)}"
        yield Tile(
            parted(first.name)[1], nbytes, title, class_=classes[first.type_name], facts=facts
        )


def _values(inspection: Inspection) -> Markup:
    """Histograms of the largest tensors."""
    largest = sorted(inspection.summary.tensors, key=lambda one: -one.size)[:MOST_HISTOGRAMS]
    chosen = {tensor.name for tensor in largest}
    shown = [tensor for tensor in inspection.summary.tensors if tensor.name in chosen]
    what = "How many elements have which value, on a logarithmic scale of numbers; a mark is at 0."
    if len(shown) < len(inspection.summary.tensors):
        what = f"{what} Of {len(inspection.summary.tensors):,} tensors the {len(shown)} largest."
    return section("Values", what, figures(_histogram(inspection, one) for one in shown))


def _histogram(inspection: Inspection, tensor: TensorInfo) -> Markup:
    stats, counted = inspection.stats[tensor.name], inspection.histograms.get(tensor.name)
    odd = stats.nans + stats.infinities
    facts = f"{tensor.type_name} {units.shape(tensor.shape)}"
    if stats.std is not None:
        facts = f"{facts}, mean {number(float(stats.mean))}, deviation {number(stats.std)}"
    facts = f"{facts}, {odd:,} not finite" if odd else facts
    name = f"histogram of {tensor.name}"
    picture = histogram((), 0, 0, name=name)
    if counted is not None:
        picture = histogram(counted.counts, counted.low, counted.high, name=name)
    return figure(tensor.name, facts, picture)


def _spread(inspection: Inspection) -> Iterator[Markup]:
    """Yield curves of the standard deviation over layers, where there are some layers."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for tensor in inspection.summary.tensors:
        layer, std = layer_of(tensor.name), inspection.stats[tensor.name].std
        if layer is not None and std is not None and math.isfinite(std):
            curves.setdefault(numbered(tensor.name)[0], []).append((layer, std))
    long = {role: points for role, points in curves.items() if len(points) >= FEWEST_LAYERS}
    if long:
        what = "Standard deviations of the tensors of one role, from layer to layer, from 0 on."
        shown = (figure(role, "", curve(points, name=role)) for role, points in long.items())
        yield section("Spread by layer", what, figures(shown))
