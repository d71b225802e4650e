"""Words of older schemas of recipes, and what is said in their place."""

from __future__ import annotations

from collections.abc import Mapping

_CODEC = "name a codec instead (docs/recipes.md lists them)"

REPLACEMENTS: Mapping[str, str] = {
    # of a field and its ways of spelling
    "as": _CODEC,
    "beside": _CODEC,
    "if": f"{_CODEC}, or 'values' with true and false",
    "is": f"{_CODEC}, or 'values' with true and false",
    "null": _CODEC,
    # of keys
    "every": 'write codec = "sparse_layers"',
    "except": 'write codec = "sparse_layers"',
    "from": _CODEC,
    "period": 'write codec = "period", and its default as the key would say it',
    # of formulas
    "by": _CODEC,
    "longrope_attention": 'write codec = "longrope_attention"',
    "not": _CODEC,
    "share": 'write codec = "share_of_head", and its default as the key would say it',
    "sum": _CODEC,
    # of tensors that follow from the configuration
    "formula": 'write codec = "llama3"',
    # operations
    "cast": "leave it out: parameters keep the type that is stored",
    "dequantize": "leave it out: blocks are decoded where a rule needs values",
    "rope_halves_to_pairs": "no tensor is known that needs it",
    "scale": "no tensor is known that needs it",
}


def replaced(word: str) -> str:
    """Advice on a word of schema 1; nothing for any other word."""
    instead = REPLACEMENTS.get(word)
    return f"{word!r} is a word of schema 1: {instead}" if instead else ""
