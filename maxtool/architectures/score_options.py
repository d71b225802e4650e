"""Options of decoders that score texts in the place of further tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes

PAIR = 2  # tokens of which one is scored beside the other


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(DecoderSizes):
    """Ways from the vector of a text's last token to scores, as sentence-transformers has them."""

    # What makes scores: the ``tokens`` whose logits count, or a head for ``labels``; None for a
    # decoder that has no scores.
    scored_by: str | None = None
    # The token whose logit is the score and, if there are two, the one whose logit is taken off.
    score_tokens: tuple[int, ...] | None = None
    n_labels: int = 0  # classes that a head tells apart, or 1 for a score; 0 for no such head
    labels: tuple[str, ...] | None = None  # their names
    # What makes scores of logits: ``softmax``, ``sigmoid`` or ``none``; None is a sigmoid of one
    # label, and a softmax of several.
    scores: str | None = None

    @property
    def score_rows(self) -> int:
        """The rows of the matrix that makes scores; 0 where there is none."""
        if self.scored_by is None:
            return 0
        return len(self.score_tokens or ()) or self.n_labels

    @property
    def is_difference(self) -> bool:
        """Return whether the score is what one logit has over another."""
        return self.scored_by == "tokens" and self.score_rows == PAIR

    @property
    def n_scores(self) -> int:
        """Scores of a text."""
        return 1 if self.is_difference else self.score_rows

    @property
    def named_labels(self) -> tuple[str, ...] | None:
        """The names of the labels; None where there is not one for each."""
        return self.labels if self.labels and len(self.labels) == self.n_scores else None

    @property
    def scoring(self) -> str:
        """The function that makes scores of logits, as transformers' pipeline chooses it."""
        return self.scores or ("sigmoid" if self.n_scores == 1 else "softmax")


def score_problems(config: ScoreOptions) -> Iterator[str]:
    """Yield what does not fit of a way to scores."""
    tokens = config.score_tokens or ()
    if config.scored_by is not None and not config.score_rows:
        yield f"scored_by {config.scored_by!r} without anything that makes scores"
    if config.scored_by != "tokens":
        return
    if len({*tokens}) != len(tokens) or len(tokens) > PAIR:
        yield f"score_tokens are {', '.join(map(str, tokens))}: one token, or two different ones"
    if missing := [token for token in tokens if not 0 <= token < config.vocab_size]:
        yield f"score_tokens has token {missing[0]}, of {config.vocab_size}"
