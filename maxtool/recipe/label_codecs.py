"""Codecs of classifiers: the names of classes, and what llama.cpp takes for granted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.recipe.activation_codecs import NAMES, named, spelled
from maxtool.recipe.codec_type import NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Values

SPELLED = spelled(NAMES)
UNNAMED = ("LABEL_0", "LABEL_1")
"""Names of two classes that transformers gives where there are none; llama.cpp leaves them out."""


def _read_table(raws: Raws, _values: Values) -> Any:  # noqa: ANN401 - the field's type decides
    """The names of ``id2label`` in the order of its numbers; None where one is missing, or none."""
    table = raws[0]
    if not isinstance(table, Mapping):
        return None
    names = tuple(table.get(str(number)) for number in range(len(table)))
    is_whole = names and all(isinstance(name, str) for name in names)
    return names if is_whole and names != UNNAMED else None


def _write_table(value: tuple[str, ...] | None, _values: Values) -> Raws:
    if value is None:
        return (None, None)
    numbered = {str(number): name for number, name in enumerate(value)}
    return numbered, {name: number for number, name in enumerate(value)}


def _write_list(value: tuple[str, ...] | None, _values: Values) -> Raws:
    return (None if value is None else [*value],)


def _read_activation(raws: Raws, values: Values) -> Any:  # noqa: ANN401 - the field's type decides
    """The activation of a head, null where there is none: its name then decides nothing."""
    return named(raws[0] or "gelu") if values["n_labels"] else None


def _write_activation(value: str | None, _values: Values) -> Raws:
    return (SPELLED.get(value, value) if value else None,)


def _write_gelu(value: str | None, _values: Values) -> Raws:
    if value not in (None, "gelu"):
        raise Unspellable(f"llama.cpp computes heads with gelu, not {value}")
    return ()


LABEL_CODECS: Mapping[str, Codec] = {
    "labels_by_number": Codec(_read_table, _write_table, ("texts",), ("any", "any")),
    "labels_in_order": Codec(lambda raws, _: raws[0], _write_list, ("texts",)),
    "head_activation": Codec(
        _read_activation, _write_activation, ("str",), ("str",), needs={"n_labels": NUMBER}
    ),
    "head_bias": Codec(
        read=lambda raws, values: bool(values["n_labels"] and raws[0]),
        write=lambda value, values: (value if values["n_labels"] else None,),
        types=("bool",),
        keys=("bool",),
        needs={"n_labels": NUMBER},
    ),
    "gelu_of_heads": Codec(
        # llama.cpp computes heads with it whatever a file says.
        read=lambda _raws, values: "gelu" if values["n_labels"] else None,
        write=_write_gelu,
        types=("str",),
        keys=(),
        needs={"n_labels": NUMBER},
    ),
}
