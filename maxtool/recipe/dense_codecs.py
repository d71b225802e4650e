"""Codecs of layers behind the pooling, as GGUF describes them: two, of matrices alone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from maxtool.recipe.codec_type import SIZES_OR_NULL, Codec, Raws, Unspellable
from maxtool.recipe.dense_modules import FEATURES
from maxtool.recipe.expressions import Undefined, Values

MOST = 2
PLAIN = "identity"


def _read(raws: Raws, _values: Values) -> Any:  # noqa: ANN401 - the field's type decides
    """The widths of outputs, where inputs have the width of what is before them."""
    _, first, taken, second = raws
    if (taken, second) == (None, None):
        return None if first is None else (first,)
    if taken != first:
        raise Undefined(f"the second layer takes {taken} numbers, and {first} come before it")
    return first, second


def _write(value: tuple[int, ...] | None, values: Values) -> Raws:
    widths = (values["hidden_size"], *(value or ()))
    if len(widths) > MOST + 1 or widths[-1] != widths[0]:
        raise Unspellable("llama.cpp takes one or two layers that lead back to the width")
    said = [number for pair in pairwise(widths) for number in pair]
    return [*said, *[None] * (2 * MOST - len(said))]


def _all(usual: bool | str, kind: str) -> Codec:
    """A value for each layer that is the same for all, and that no key says."""

    def read(_raws: Raws, values: Values) -> Any:  # noqa: ANN401
        layers = values[FEATURES]
        return None if layers is None else (usual,) * len(layers)

    def write(value: tuple[bool | str, ...] | None, values: Values) -> Raws:
        if value != read((), values):
            raise Unspellable("llama.cpp multiplies with these matrices, and does no more")
        return ()

    return Codec(read, write, (kind,), (), needs={FEATURES: SIZES_OR_NULL})


DENSE_CODECS: Mapping[str, Codec] = {
    "two_dense_layers": Codec(
        _read, _write, ("ints",), ("int",) * (2 * MOST), writes_with=("hidden_size",)
    ),
    "dense_without_biases": _all(usual=False, kind="bools"),
    "dense_without_activations": _all(PLAIN, "texts"),
}
