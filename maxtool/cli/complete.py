"""Shell completion of options' values and of recipes; a shell completes files by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maxtool.quantization.scheme import StoredType


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Completes to one of some values."""
    return lambda incomplete: _beginning(values, incomplete)


def recipes(incomplete: str) -> list[str]:
    """Completes to the name of a recipe."""
    from maxtool.recipe.recipe_files import recipe_names

    return _beginning(recipe_names(), incomplete)


def mix_names() -> list[str]:
    """The names that ``--quantize`` knows: mixes, and types that stand for some."""
    from maxtool.quantization.mixes import ALIASES, MIXES

    return sorted({*MIXES, *ALIASES, "MXFP4"})


def mixes(incomplete: str) -> list[str]:
    """Completes to a mix, or a type that stands for some."""
    return _beginning(mix_names(), incomplete)


def glob_and(types: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Completes ``GLOB=`` to that with a type behind it."""

    def complete(incomplete: str) -> list[str]:
        glob, equals, begun = incomplete.rpartition("=")
        return [f"{glob}={each}" for each in types(begun)] if equals else []

    return complete


def float_types(incomplete: str) -> list[str]:
    """Completes to a floating-point type of elements."""
    from maxtool.dtype import DType

    return _beginning([dtype.value for dtype in DType if dtype.is_float()], incomplete)


def stored_types(incomplete: str) -> list[str]:
    """Completes to a type that a tensor can be written as."""
    return _beginning(list(writable_types()), incomplete)


def writable_types() -> dict[str, StoredType]:
    """The types that tensors can be written as, by the names that users give."""
    from maxtool.dtype import DType
    from maxtool.quantization.codec import ENCODABLE

    blocks = {each.name: each for each in sorted(ENCODABLE, key=lambda each: each.name)}
    return {**blocks, "F16": DType.float16, "BF16": DType.bfloat16, "F32": DType.float32}


def _beginning(values: Sequence[str], incomplete: str) -> list[str]:
    return [value for value in values if value.startswith(incomplete)]
