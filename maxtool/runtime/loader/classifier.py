"""Texts told apart by a model's classifier, or scored in pairs with another text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from .embedder import prompt_of
from .entries import EntryRunner
from .errors import BadInput, BadUsage, DoesNotFit
from .memory import Array
from .pairs import PairEncoder, open_pairs
from .specs import CLASSIFY
from .text_rows import Row, TextRows
from .tokens import check_text, open_tokenizer


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

    def __init__(
        self,
        model: EntryRunner,
        batch: int = 32,
        go_on: Callable[[], None] = lambda: None,
        *,
        prompt: str | None = None,
        instruction: str | None = None,
    ) -> None:
        """Prepare; see :meth:`Model.classify`."""
        super().__init__(model, batch, go_on)
        manifest = model.manifest
        self._template = manifest.pair_template
        asked = prompt is not None or instruction is not None
        if self._template is None and asked:
            what = "the model has no template with a place for an instruction, or a prompt"
            raise DoesNotFit(what)
        if prompt is not None and instruction is not None:
            raise BadUsage("a prompt of the model, or an instruction: not both")
        usual = prompt_of(manifest, prompt) if self._template is not None else ""
        self._instruction = usual if instruction is None else instruction
        check_text(self._instruction, "the instruction")

    @property
    def labels(self) -> list[str]:
        """The names of the labels; transformers' own where the model does not name them."""
        return self._model.manifest.labels or [f"LABEL_{number}" for number in range(self.width)]

    def _encode(self, texts: Sequence[str], query: str | None) -> list[Row]:
        """The tokens of texts, or of pairs as the model's template writes them."""
        if self._template is None:
            return super()._encode(texts, query)
        if query is None:
            hint = "give a query beside the texts, which are the documents"
            raise BadInput("the model scores documents beside a query", hint=hint)
        for number, text in enumerate(texts, start=self.texts + 1):
            check_text(text, f"text {number}")
        encoder = self._pairs
        used = [self._usable(text) for text in texts]
        found = encoder.encode(self._first(query), used)
        shortened = (len(one) < len(text) for one, text in zip(used, texts, strict=True))
        self.truncated += sum(
            is_cut or short for (_, is_cut), short in zip(found, shortened, strict=True)
        )
        return [Row(ids, [0] * len(ids)) for ids, _ in found]

    @cached_property
    def _pairs(self) -> PairEncoder:
        """The encoder that writes pairs by the template."""
        manifest = self._model.manifest
        self._tokenizer = open_tokenizer(manifest)
        template = self._template or {}
        return open_pairs(manifest, template, self._tokenizer, self._instruction or None)

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
