"""Texts as vectors, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from .entries import EntryRunner
from .errors import BadInput, BadUsage, RunError
from .memory import Array
from .specs import EMBED
from .tokens import beginning, check_text, most_bytes, open_tokenizer, telling_failures
from .wrong_path import another_task

# A text, or its token ids.
Text: TypeAlias = str | Sequence[int]

# Batches are made of texts of like lengths, chosen from so many batches' worth.
WINDOW = 16


class Embedder:
    """Embedder of texts, ``batch`` of them in one call, with the model's own pooling.

    Attributes:
        texts: How many were embedded so far.
        tokens: Of how many tokens.
        truncated: How many texts were cut, because they are longer than the context.
    """

    def __init__(
        self, model: EntryRunner, batch: int = 32, go_on: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare; ``go_on`` is called before each batch, and ends all by what it raises."""
        if model.manifest.task != EMBED:
            raise another_task(model.manifest.task)
        if batch < 1:
            raise BadUsage(f"a batch of {batch} texts")
        self._model, self._batch, self._go_on = model, batch, go_on
        self._tokenizer: Any = None
        self.texts = self.tokens = self.truncated = 0

    @property
    def context(self) -> int | None:
        """Positions of the model, beyond which texts are cut."""
        return self._model.manifest.context

    @property
    def width(self) -> int:
        """Elements of a vector."""
        (vectors,) = self._model.entry("embed").outputs
        return int(vectors.shape[1])

    def stream(self, texts: Iterable[Text]) -> Iterator[Array]:
        """Yield the texts' vectors in order, float32 ``[some, hidden]`` at a time."""
        waiting = iter(texts)
        while window := list(islice(waiting, self._batch * WINDOW)):
            ids = self._ids(window)
            order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
            parts = [
                self._run([ids[index] for index in order[start : start + self._batch]])
                for start in range(0, len(order), self._batch)
            ]
            vectors = np.concatenate(parts)
            vectors[order] = vectors.copy()
            self.texts += len(window)
            yield vectors

    def _ids(self, window: Sequence[Text]) -> list[Sequence[int]]:
        """The token ids of each, cut to the context."""
        written = [text for text in window if isinstance(text, str)]
        encoded = iter(self._encode(written) if written else ())
        ids = [next(encoded) if isinstance(text, str) else self._cut(text) for text in window]
        for number, row_ids in enumerate(ids, start=self.texts + 1):
            if not len(row_ids):
                raise BadInput(f"text {number} has no tokens")
        self.tokens += sum(map(len, ids))
        return ids

    def _encode(self, texts: Sequence[str]) -> list[Sequence[int]]:
        for number, text in enumerate(texts, start=self.texts + 1):
            check_text(text, f"text {number}")
        if self._tokenizer is None:
            # One of its own, as it is told to cut texts.
            self._tokenizer = open_tokenizer(self._model.manifest)
            if self.context is not None:
                self._tokenizer.enable_truncation(self.context)
        used = [self._usable(text) for text in texts]
        with telling_failures():
            encodings = self._tokenizer.encode_batch(used)
        pairs = zip(texts, used, encodings, strict=True)
        self.truncated += sum(len(u) < len(text) or bool(f.overflowing) for text, u, f in pairs)
        return [encoding.ids for encoding in encodings]

    def _usable(self, text: str) -> str:
        """The beginning of a text that its tokens come from."""
        return beginning(text[: most_bytes(self.context)], self.context, self._count)

    def _count(self, text: str) -> int:
        """Tokens of a text, those that are cut off included."""
        with telling_failures():
            encoding = self._tokenizer.encode(text)
        return len(encoding.ids) + sum(len(more.ids) for more in encoding.overflowing)

    def _cut(self, ids: Sequence[int]) -> Sequence[int]:
        self.truncated += self.context is not None and len(ids) > self.context
        return ids[: self.context]

    def _run(self, ids: Sequence[Sequence[int]]) -> Array:
        self._go_on()
        shape = (len(ids), max(map(len, ids)))
        padded, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, row_ids in enumerate(ids):
            padded[row, : len(row_ids)], mask[row, : len(row_ids)] = row_ids, 1
        arrays = {"input_ids": padded, "attention_mask": mask}
        vectors = self._model.run("embed", arrays)["embeddings"]
        if not np.isfinite(vectors).all():
            raise RunError("the model's embeddings are not finite numbers")
        return vectors
