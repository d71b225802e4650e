"""Codecs of the shares of gates that are zero, one for each layer (Gemma 3n).

transformers has the shares, llama.cpp how many standard deviations above the mean of all the others
are, minus infinity for a layer of which none are zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

from maxtool.recipe.codec_type import NUMBER, Codec, Raws
from maxtool.recipe.expressions import Undefined, Values, is_number
from maxtool.recipe.keys import short

Shares = tuple[float, ...]
# What transformers takes where a configuration says none: as much of the first layers, if there are
# more of them.
USUAL_SHARE, USUAL_LAYERS = 0.95, 10
# Releases of PyTorch, from which llama.cpp's converter has its numbers, differ by as much.
ROUNDING = 2e-7
MOST_DIGITS = 9


def _read_shares(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    (shares,) = raws
    if shares is not None:
        return _of_each_layer(shares, values)
    layers: int = values["n_layers"]
    first = USUAL_LAYERS if layers > USUAL_LAYERS else 0
    return (USUAL_SHARE,) * first + (0.0,) * (layers - first)


def _read_deviations(raws: Raws, values: Values) -> Any:  # noqa: ANN401
    (numbers,) = raws
    if numbers is None:
        return None
    return [_share(number) for number in _of_each_layer(numbers, values)]


def _of_each_layer(numbers: Any, values: Values) -> Sequence[Any]:  # noqa: ANN401
    """The numbers, of which there must be one for each layer; Undefined if they are not."""
    layers: int = values["n_layers"]
    if not isinstance(numbers, list | tuple) or len(numbers) != layers:
        raise Undefined(f"{short(numbers)} has not one number for each of {layers} layers")
    return numbers


def _share(number: Any) -> float:  # noqa: ANN401
    """The share that numbers so many deviations above the mean have below them, as it was written.

    Raises:
        Undefined: If a share in float32 cannot say it.
    """
    from maxtool.architectures.sparse_gates import deviations, is_share

    if number == -math.inf:
        return 0.0
    if not is_number(number):
        raise Undefined(f"{short(number)} is not a number")
    whole = NormalDist().cdf(number)
    for digits in range(1, MOST_DIGITS + 1):
        share = round(whole, digits)
        fits = share and is_share(share)
        if fits and math.isclose(deviations(share), number, rel_tol=ROUNDING, abs_tol=ROUNDING):
            return share
    raise Undefined(f"{short(number)} standard deviations are no share of gates in float32")


def _write_deviations(shares: Shares, _values: Values) -> Raws:
    from maxtool.architectures.sparse_gates import deviations

    return ([deviations(share) if share else -math.inf for share in shares],)


LAYERS = {"n_layers": NUMBER}

SPARSITY_CODECS: Mapping[str, Codec] = {
    "shares_of_gates": Codec(
        _read_shares, lambda shares, _: ([*shares],), ("reals",), needs=LAYERS
    ),
    "deviations_of_gates": Codec(_read_deviations, _write_deviations, ("reals",), needs=LAYERS),
}
