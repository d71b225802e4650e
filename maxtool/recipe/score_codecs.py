"""Codecs of decoders that score texts: by logits of a few tokens, or by a head for labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from maxtool.recipe.codec_type import COUNTS_OR_NULL, NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values

TOKENS, LABELS = "tokens", "labels"
RANK = 4
"""llama.cpp's number of the pooling that a head of scores follows."""
PAIR = 2
"""Tokens of which llama.cpp scores one beside the other."""
HEADLESS = (
    f"{RANK} is the pooling of models that score texts, and the file has no cls.output.weight, the"
    " head that makes scores: convert the original model again, with a converter that writes it"
)
ONE = "llama.cpp makes a share of each score among several, and this model gives one"


def _read_ids(raws: Raws, _values: Values) -> Any:  # noqa: ANN401 - the field's type decides
    """The token whose logit counts, and the one whose logit is taken off, if there is one."""
    wanted, other = raws
    ids = (wanted, other) if other is not None else (wanted,)
    return None if wanted is None else ids


def _write_ids(value: tuple[int, ...] | None, _values: Values) -> Raws:
    return [*(value or ()), *[None] * (PAIR - len(value or ()))]


def _read_names(raws: Raws, _values: Values) -> Any:  # noqa: ANN401 - the field's type decides
    """The tokens that the labels name, of a file that says how a pair of texts is put to them."""
    pooling, template, labels, tokens = raws
    named = isinstance(labels, Sequence) and isinstance(tokens, Sequence)
    if pooling != RANK or template is None or not named or len(labels) != PAIR:
        return None
    places = {token: place for place, token in enumerate(tokens)}
    found = tuple(places.get(label) for label in labels)
    return None if None in found else found


def _write_names(value: tuple[int, ...] | None, _values: Values) -> Raws:
    """Return nothing: what the tokenizer says, and labels beside it, is written with that."""
    if value is not None and len(value) != PAIR:
        raise Undefined(ONE)
    return (None,) * 4


def _read_kind(_raws: Raws, values: Values) -> Any:  # noqa: ANN401 - the field's type decides
    if values["score_tokens"] is not None:
        return TOKENS
    return LABELS if values["n_labels"] else None


def _write_kind(value: str | None, values: Values) -> Raws:
    if value != _read_kind((), values):
        raise Unspellable
    return ()


def _read_pooling(raws: Raws, values: Values) -> Any:  # noqa: ANN401 - the field's type decides
    if raws[0] != RANK:
        return None
    if values["score_tokens"] is None and not values["n_labels"]:
        raise Undefined(HEADLESS)
    return LABELS if values["score_tokens"] is None else TOKENS


def _write_pooling(value: str | None, values: Values) -> Raws:
    _write_kind(value, values)
    if value == LABELS and values["n_labels"] < PAIR:
        raise Undefined(ONE)
    return (None if value is None else RANK,)


def _refuse(value: str | None, _values: Values) -> Raws:
    if value is not None:
        raise Undefined("llama.cpp has no place for scores of texts by models of this kind")
    return (None,)


_NEEDS = {"score_tokens": COUNTS_OR_NULL, "n_labels": NUMBER}

SCORE_CODECS: Mapping[str, Codec] = {
    "tokens_of_scores": Codec(_read_ids, _write_ids, ("counts",), ("count", "count")),
    "tokens_by_labels": Codec(_read_names, _write_names, ("counts",), ("any",) * 4),
    "scored_by": Codec(_read_kind, _write_kind, ("str",), (), needs=_NEEDS),
    "scored_by_rank": Codec(_read_pooling, _write_pooling, ("str",), needs=_NEEDS),
    "never_scored": Codec(lambda _raws, _values: None, _refuse, ("str",)),
}
