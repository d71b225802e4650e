"""Texts, or pairs of them, to rows of numbers that an entry of the model gives, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from .entries import EntryRunner
from .errors import BadInput, BadUsage, RunError
from .memory import Array
from .specs import DUAL_ENCODER, EMBED
from .tokens import beginning, check_text, most_bytes, open_tokenizer, telling_failures
from .wrong_path import another_task

# A text, or its token ids.
Text: TypeAlias = str | Sequence[int]

# Batches are made of texts of like lengths, chosen from so many batches' worth.
WINDOW = 16


class Row(NamedTuple):
    """The tokens of a text, or of a pair, and to which of the two each belongs."""

    ids: Sequence[int]
    types: Sequence[int]


class TextRows:
    """Rows of numbers that texts become, ``batch`` of them in one call.

    Attributes:
        texts: How many were read so far.
        tokens: Of how many tokens.
        truncated: How many texts were cut, because they are longer than the context.
    """

    entry: ClassVar[str]  # what is run
    output: ClassVar[str]  # what of it is taken

    def __init__(
        self, model: EntryRunner, batch: int = 32, go_on: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare; ``go_on`` is called before each batch, and ends all by what it raises."""
        if model.manifest.task not in (EMBED, DUAL_ENCODER):
            raise another_task(model.manifest.task)
        if batch < 1:
            raise BadUsage(f"a batch of {batch} texts")
        self._model, self._batch, self._go_on = model, batch, go_on
        self._tokenizer: Any = None
        self.before = ""  # a text that each text is read behind
        self._typed = {spec.name for spec in model.entry(self.entry).inputs} >= {"token_type_ids"}
        self.texts = self.tokens = self.truncated = 0

    @property
    def context(self) -> int | None:
        """Positions of the model, beyond which texts are cut."""
        return self._model.manifest.context

    @property
    def width(self) -> int:
        """Elements of a row."""
        (rows,) = self._model.entry(self.entry).outputs
        return int(rows.shape[1])

    def stream(self, texts: Iterable[Text], query: str | None = None) -> Iterator[Array]:
        """Yield the texts' rows in order, float32 ``[some, width]`` at a time.

        Where there is a ``query``, each text is read as the second of a pair with it.
        """
        waiting = iter(texts)
        while window := list(islice(waiting, self._batch * WINDOW)):
            read = self._read(window, query)
            order = sorted(range(len(read)), key=lambda index: len(read[index].ids))
            parts = [
                self._run([read[index] for index in order[start : start + self._batch]])
                for start in range(0, len(order), self._batch)
            ]
            rows = np.concatenate(parts)
            rows[order] = rows.copy()
            self.texts += len(window)
            yield rows

    def _read(self, window: Sequence[Text], query: str | None) -> list[Row]:
        """The tokens of each, cut to the context."""
        written = [text for text in window if isinstance(text, str)]
        encoded = iter(self._encode(written, query) if written else ())
        read = [next(encoded) if isinstance(text, str) else self._cut(text) for text in window]
        for number, row in enumerate(read, start=self.texts + 1):
            if not len(row.ids):
                raise BadInput(f"text {number} has no tokens")
        self.tokens += sum(len(row.ids) for row in read)
        return read

    def _encode(self, texts: Sequence[str], query: str | None) -> list[Row]:
        for number, text in enumerate(texts, start=self.texts + 1):
            check_text(text, f"text {number}")
        if self._tokenizer is None:
            # One of its own, as it is told to cut texts.
            self._tokenizer = open_tokenizer(self._model.manifest)
            if self.context is not None:
                self._tokenizer.enable_truncation(self.context)
        first = None if query is None else self._first(query)
        used = [self._usable(self.before + text) for text in texts]
        asked = used if first is None else [(first, text) for text in used]
        with telling_failures():
            encodings = self._tokenizer.encode_batch(asked)
        pairs = zip(texts, used, encodings, strict=True)
        whole = len(self.before)
        self.truncated += sum(
            len(u) < whole + len(text) or bool(f.overflowing) for text, u, f in pairs
        )
        return [Row(encoding.ids, encoding.type_ids) for encoding in encodings]

    def _first(self, query: str) -> str:
        """The usable part of the first text of pairs."""
        check_text(query, "the query")
        return self._usable(query)

    def _usable(self, text: str) -> str:
        """The beginning of a text that its tokens come from."""
        return beginning(text[: most_bytes(self.context)], self.context, self._count)

    def _count(self, text: str) -> int:
        """Tokens of a text, those that are cut off included."""
        with telling_failures():
            encoding = self._tokenizer.encode(text)
        return len(encoding.ids) + sum(len(more.ids) for more in encoding.overflowing)

    def _cut(self, ids: Sequence[int]) -> Row:
        self.truncated += self.context is not None and len(ids) > self.context
        kept = ids[: self.context]
        return Row(kept, [0] * len(kept))

    def _run(self, read: Sequence[Row]) -> Array:
        self._go_on()
        filled = self._model.manifest.filled
        longest = max(len(row.ids) for row in read) if filled is None else filled.length
        shape = (len(read), longest)
        ids, mask, types = (np.zeros(shape, np.int64) for _ in range(3))
        if filled is not None:
            ids[:], mask[:] = filled.token, not filled.is_hidden
        for at, row in enumerate(read):
            length = len(row.ids)
            ids[at, :length], mask[at, :length], types[at, :length] = row.ids, 1, row.types
        arrays = {"input_ids": ids, "attention_mask": mask}
        arrays |= {"token_type_ids": types} if self._typed else {}
        rows = self._model.run(self.entry, arrays)[self.output]
        if not np.isfinite(rows).all():
            raise RunError(f"the model's {self.output} are not finite numbers")
        return rows
