"""Clusters of a treemap: the tensors of each layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from maxtool.cli.pages.treemap import Cluster, Tile
from maxtool.weights.roles import parted

Item = TypeVar("Item")


def clustered(
    items: Iterable[Item],
    name: Callable[[Item], str],
    tiles: Callable[[Sequence[Item]], Iterable[Tile]],
) -> list[Cluster]:
    """A cluster for each layer; what is in none has one of its own."""
    layers: dict[str, list[Item]] = {}
    for item in items:
        layer, _ = parted(name(item))
        layers.setdefault(layer or name(item), []).append(item)
    return [Cluster(label, tuple(tiles(members))) for label, members in layers.items()]
