"""A reference and candidates, compared on a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from maxtool.errors import ModelMismatch
from maxtool.evaluation.language_model import LanguageModel
from maxtool.evaluation.model_summary import Summary, summarize
from maxtool.evaluation.token_scores import TokenScores, joined, score
from maxtool.evaluation.windows import USUAL, Windows

# Told the number of the window that begins, from 1 on, and how many there are.
Progress: TypeAlias = Callable[[int, int], None]


def compare(
    models: Sequence[LanguageModel],
    windows: Windows,
    progress: Progress = lambda _number, _count: None,
) -> list[Summary]:
    """Summarize how well each model predicts a text; the first one is the reference.

    The logits of two models are held at a time, those of one window.
    """
    rounds = list(_score_windows(models, windows, progress))
    scores = [joined(column) for column in zip(*rounds, strict=True)]
    return [summarize(of_model, scores[0]) for of_model in scores]


def _score_windows(
    models: Sequence[LanguageModel], windows: Windows, progress: Progress
) -> Iterator[list[TokenScores]]:
    """Yield the scores of all models, a window at a time."""
    for number, (ids, tokens) in enumerate(zip(windows.ids, windows.tokens, strict=True), 1):
        progress(number, windows.count)
        reference = windows.scored(models[0].logits(ids))
        others = (windows.scored(model.logits(ids)) for model in models[1:])
        yield [
            score(reference, reference, tokens),
            *(score(logits, reference, tokens) for logits in others),
        ]


def window_length(models: Sequence[LanguageModel], wanted: int | None) -> int:
    """The tokens of a window: as many as wanted; 512, or the smallest context, if None.

    Raises:
        ModelMismatch: If the context of a model is smaller than what is wanted.
    """
    least = min(models, key=lambda model: _most(model, USUAL if wanted is None else wanted))
    if wanted is None:
        return _most(least, USUAL)
    if _most(least, wanted) < wanted:
        what = f"the context of the model holds {least.context} tokens, not {wanted}"
        hint = "give a smaller --context, or compile it with a larger one"
        raise ModelMismatch(what, file=least.folder, hint=hint)
    return wanted


def _most(model: LanguageModel, tokens: int) -> int:
    return tokens if model.context is None else min(model.context, tokens)
