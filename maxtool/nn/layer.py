"""Layers by their older names; they are the modules of :mod:`maxtool.nn`.

``Layer`` and ``LayerV2`` were to be merged and are: each is :class:`maxtool.nn.Module`, whose calls
have hooks and whose weights have names and devices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from maxtool.graph import ShardingStrategy
from maxtool.nn import tree
from maxtool.nn.containers import LayerList
from maxtool.nn.hooks import add_layer_hook, clear_hooks
from maxtool.nn.module import Module

__all__ = [
    "Layer",
    "LayerList",
    "LayerV2",
    "ShardingStrategy",
    "add_layer_hook",
    "clear_hooks",
    "recursive_named_layers",
]

Layer = Module
LayerV2 = Module


def recursive_named_layers(parent: LayerV2, prefix: str = "") -> Iterator[tuple[str, LayerV2]]:
    """``(path, layer)`` of ``parent``, its children, theirs, and so on: breadth first, each once.

    Args:
        parent: Where to begin; its path is ``prefix``.
        prefix: What every path begins with.
    """
    seen: set[int] = set()
    pending = deque([(prefix, parent)])
    while pending:
        path, layer = pending.popleft()
        if id(layer) not in seen:
            seen.add(id(layer))
            yield path, layer
            pending.extend((tree.join(path, name), child) for name, child in tree.children(layer))
