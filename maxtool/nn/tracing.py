"""Graphs of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from maxtool.graph import Graph, TensorType, Weight
from maxtool.nn import state, tree
from maxtool.nn.called import Called
from maxtool.nn.layer_sharing import sharing


def trace(
    module: Called[..., Any],
    name: str,
    input_types: Iterable[TensorType],
    function: Callable[..., Any] | None = None,
) -> Graph:
    """The graph of a module, or of another function over it, with equal layers traced once."""
    state.name_weights(module)
    plain = [leaf for leaf in tree.leaves(module) if not isinstance(leaf.tensor, Weight)]
    names = {id(leaf.tensor): leaf.name for leaf in reversed(plain)}  # the first of several
    with sharing(module):
        return Graph(name, function or module, input_types, names=names)
