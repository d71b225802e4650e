"""Shell completion of options' values and of recipes; a shell completes files by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Completes to one of some values."""
    return lambda incomplete: _beginning(values, incomplete)


def recipes(incomplete: str) -> list[str]:
    """Completes to the name of a recipe."""
    from maxtool.recipe.recipe_files import recipe_names

    return _beginning(recipe_names(), incomplete)


def encodings(incomplete: str) -> list[str]:
    """Completes to a block encoding that can be written."""
    from maxtool.quantization.codec import ENCODABLE

    return _beginning([encoding.name for encoding in ENCODABLE], incomplete)


def _beginning(values: Sequence[str], incomplete: str) -> list[str]:
    return [value for value in values if value.startswith(incomplete)]
