"""GGUF's names of a model's matrices, from the recipe alone, without the model's configuration."""

from __future__ import annotations

from collections.abc import Iterable

from maxtool.recipe.schema import Recipe

LAYERS, HEAD = "blk.", "output.weight"


def weighed_matrices(recipe: Recipe, parameters: Iterable[str], *, head: bool) -> dict[str, str]:
    """GGUF's names of the parameters whose importance llama-imatrix measures.

    These are the matrices of layers, and with ``head`` that of an output that is not the embedding.
    Several parameters may be one tensor in GGUF.
    """
    names = {parameter: _gguf_name(recipe, parameter) for parameter in parameters}
    return {
        parameter: name
        for parameter, name in names.items()
        if name.startswith(LAYERS) or (head and name == HEAD)
    }


def _gguf_name(recipe: Recipe, parameter: str) -> str:
    """The one name that a parameter has, whatever the configuration; empty where there is none."""
    rules = recipe.rules["gguf"].rules if "gguf" in recipe.rules else ()
    matched = [(rule, rule.target.match(parameter)) for rule in rules]
    names = {
        source.name(indices)
        for rule, indices in matched
        if indices is not None and rule.over is None and not rule.lost
        for source in rule.sources
    }
    return names.pop() if len(names) == 1 else ""
