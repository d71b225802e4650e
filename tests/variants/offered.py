"""Entries that an architecture has for a model, as a recipe says them."""

from __future__ import annotations

from maxtool.architectures import Architecture, build
from maxtool.graph import StaticDim
from maxtool.recipe import Plan

Offered = dict[str, dict[str, tuple[int | str, ...]]]


def offered(plan: Plan) -> Offered:
    """The entries to be named, each with its inputs and their sizes.

    Entries that follow another come with that, and so does the position of those with a cache.
    """
    config = plan.config
    found = _entries(build(plan.recipe.architecture, config))
    if plan.recipe.architecture == "decoder" and config["pooling"] is None:
        # A decoder makes vectors in the place of texts where something says how.
        found |= _entries(build(plan.recipe.architecture, {**config, "pooling": "last"}))
    return found


def _entries(module: Architecture) -> Offered:
    return {
        entry.name: {
            name: tuple(_size(dim) for dim in kind.shape)
            for name, kind in entry.inputs.items()
            if name not in ("position", "source_length")
        }
        for entry in module.entries()
        if entry.follows is None
    }


def _size(dim: object) -> int | str:
    return int(dim) if isinstance(dim, StaticDim) else str(dim)
