"""Texts told apart by a model's classifier, or scored in pairs with another text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .errors import DoesNotFit
from .memory import Array
from .specs import CLASSIFY
from .text_rows import TextRows


def softmax(logits: Array) -> Array:
    """Shares ``[rows, labels]`` whose sum is 1 in each row, in float64."""
    wide = logits.astype(np.float64)
    shares = np.exp(wide - wide.max(-1, keepdims=True))
    result: Array = shares / shares.sum(-1, keepdims=True)
    return result


def sigmoid(logits: Array) -> Array:
    """``1 / (1 + exp(-x))`` of each logit, in float64, without overflow."""
    wide = logits.astype(np.float64)
    small = np.exp(-np.abs(wide))
    result: Array = np.where(wide < 0, small, 1.0) / (1.0 + small)
    return result


# How scores are made of logits, by what the manifest calls it.
SCORES: Mapping[str, Callable[[Array], Array]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "none": lambda logits: logits.astype(np.float64),
}


class Classifier(TextRows):
    """Logits of texts, or of pairs, for each label of the model."""

    entry = CLASSIFY
    output = "logits"

    @property
    def labels(self) -> list[str]:
        """The names of the labels; transformers' own where the model does not name them."""
        return self._model.manifest.labels or [f"LABEL_{number}" for number in range(self.width)]

    @property
    def is_shared(self) -> bool:
        """Return whether scores are from 0 to 1."""
        return self._model.manifest.scores != "none"

    def scores(self, logits: Array) -> Array:
        """Scores of logits ``[rows, labels]``, as the model means them.

        Raises:
            DoesNotFit: If the manifest does not say how they are made.
        """
        made = SCORES.get(self._model.manifest.scores or "")
        if made is None:
            raise DoesNotFit("nothing says how scores are made of the model's logits")
        return made(logits)
