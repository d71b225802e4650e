"""Notes on tensors that are not quantized as asked for, and errors where that is not wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from maxtool.dtype import DType
from maxtool.errors import ModelMismatch, UsageError
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.scheme import LAST, ChosenType, Scheme, StoredType
from maxtool.recipe.layer_ranges import folded
from maxtool.weights.names import first_of, listed

WRITTEN = f"written as {LAST.value}"


def fallback_notes(
    types: Mapping[str, ChosenType], *, strict: bool, last: str = WRITTEN
) -> list[str]:
    """A line for each type that rows are not whole blocks of.

    Args:
        types: The types of tensors, by name.
        strict: Whether it is an error, which lists all of them.
        last: What becomes of rows that are not whole blocks of another type either.
    """
    groups: dict[tuple[QuantizationEncoding, StoredType], list[str]] = {}
    for name, chosen in types.items():
        if chosen.missed is not None:
            groups.setdefault((chosen.missed, chosen.type), []).append(name)
    if groups and strict:
        lines = [
            f"{name}: {_why(missed)}" for (missed, _), names in groups.items() for name in names
        ]
        what = "tensors cannot have the types that were asked for"
        raise ModelMismatch(what, problems=folded(lines), hint="without --strict others are taken")
    return [
        f"{_counted(names)} {_fate(type_, last)}, as {_why(missed)}: {first_of(names, 1)}"
        for (missed, type_), names in groups.items()
    ]


def _counted(names: Sequence[str]) -> str:
    return "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"


def _fate(type_: StoredType, last: str) -> str:
    return last if isinstance(type_, DType) else f"quantized to {type_.name}"


def _why(missed: QuantizationEncoding) -> str:
    return f"rows are not whole {missed.name} blocks of {missed.elements_per_block}"


def check_requantized(names: Sequence[str], scheme: Scheme | None) -> None:
    """Refuse to quantize again what is quantized already, unless that was asked for."""
    if names and scheme is not None and not scheme.requantize:
        what = f"{len(names)} tensors are quantized already, and would lose more"
        hint = "quantize what they were made from; --allow-requantize does it all the same"
        raise UsageError(what, problems=listed(names), hint=hint)
