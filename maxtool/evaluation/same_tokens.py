"""Tokens of several models, which must be the same before their logits can be compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import ModelMismatch
from maxtool.evaluation.language_model import LanguageModel


def check_vocabulary(models: Sequence[LanguageModel]) -> None:
    """Refuse models whose tokens, as far as the artifacts know them, are not the same.

    Raises:
        ModelMismatch: If the number of logits, the beginning-of-text token, or the name of a token
            differs from that of the first model.
    """
    reference = models[0]
    for model in models[1:]:
        _require(model, reference, "has {} logits", model.vocabulary, reference.vocabulary)
        if model.has_tokenizer and reference.has_tokenizer:
            _require(model, reference, "begins texts with token {}", model.bos, reference.bos)
            _check_pieces(model, reference)


def _check_pieces(model: LanguageModel, reference: LanguageModel) -> None:
    """Compare the names of tokens; those that one tokenizer lacks fill up a vocabulary."""
    for index in sorted(model.pieces.keys() & reference.pieces.keys()):
        text = f"calls token {index} {{!r:.40}}"
        _require(model, reference, text, model.pieces[index], reference.pieces[index])


def encode(models: Sequence[LanguageModel], text: str) -> NDArray[np.int64]:
    """The tokens of a text, ``[tokens]``, which must be the same for all models.

    Raises:
        ModelMismatch: If they are not, or an artifact has no tokenizer.
    """
    reference = models[0].encode(text)
    for model in models[1:]:
        ids = model.encode(text)
        if not np.array_equal(ids, reference):
            number = _first_difference(ids, reference)
            reads = f"reads token {number + 1} of the text as {{!r:.40}}"
            _require(model, models[0], reads, *(_name(model, i, number) for i in (ids, reference)))
    return reference


def _first_difference(first: NDArray[np.int64], second: NDArray[np.int64]) -> int:
    """The index of the first tokens that differ; of the end of the shorter one if none do."""
    length = min(len(first), len(second))
    differ = np.flatnonzero(first[:length] != second[:length])
    return int(differ[0]) if differ.size else length


def _name(model: LanguageModel, ids: NDArray[np.int64], number: int) -> str:
    """The name of a token of a text, in which there may be fewer."""
    return model.pieces.get(int(ids[number]), "") if number < len(ids) else "its end"


def _require(
    model: LanguageModel, reference: LanguageModel, text: str, actual: object, expected: object
) -> None:
    """Refuse a model of which something is not as it is of the reference."""
    if actual != expected:
        what = f"the models do not have the same tokens: this one {text.format(actual)}"
        what = f"{what}, the reference {reference.folder} {text.format(expected)}"
        raise ModelMismatch(what, file=model.folder)
