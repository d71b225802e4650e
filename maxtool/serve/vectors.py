"""``/v1/embeddings``: vectors of texts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np

from maxtool.runtime.loader import Model, RunError
from maxtool.runtime.loader.embedder import Embedder
from maxtool.runtime.loader.memory import Array
from maxtool.runtime.loader.tokens import check_length, check_tokens, telling_failures, too_long
from maxtool.serve.completion_fields import texts_or_ids
from maxtool.serve.fields import Reader, anything, one_of, read, text, whole
from maxtool.serve.refusal import busy, refusal_of, too_slow, wrong

MOST_TEXTS, ROWS = 2048, 32
EMBEDDING: Mapping[str, Reader] = {
    "model": text,
    "input": texts_or_ids(MOST_TEXTS),
    "encoding_format": one_of("float", "base64"),
    "dimensions": whole(1),
    "user": anything,
}


class EmbeddingModel:
    """A model that makes vectors, for one request after the other, in a thread of its own."""

    def __init__(self, model: Model, most_waiting: int) -> None:
        self._model, self._most, self._waiting = model, most_waiting, 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedding")
        self._tokenizer = model.open_tokenizer()
        self._width = Embedder(model).width

    async def answer(
        self, name: str, content: Mapping[str, Any], seconds: float
    ) -> dict[str, object]:
        """The JSON that answers a request, when its turn has come."""
        if self._waiting >= self._most:
            raise busy(self._waiting, self._most)
        left = Event()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, self._made, name, content, left)
        self._waiting += 1
        try:
            return await asyncio.wait_for(work, seconds)
        except TimeoutError:
            raise too_slow() from None
        finally:
            left.set()
            self._waiting -= 1

    def stop(self) -> None:
        """End the thread; what waits for it is not begun."""
        self._thread.shutdown(cancel_futures=True)

    def _made(self, name: str, content: Mapping[str, Any], left: Event) -> dict[str, object]:
        """The JSON of an answer, given up between two batches once nobody waits for it."""

        def go_on() -> None:
            if left.is_set():
                raise too_slow()

        values = read(content, EMBEDDING)
        if "input" not in values:
            raise wrong("input", "is missing")
        if values.get("dimensions", self._width) != self._width:
            raise wrong("dimensions", f"must be {self._width}, which this model has")
        try:
            ids = [self._ids(number, one) for number, one in enumerate(values["input"], start=1)]
            vectors = np.concatenate(list(Embedder(self._model, ROWS, go_on).stream(ids)))
        except RunError as error:
            raise refusal_of(error) from None
        form = _base64 if values.get("encoding_format") == "base64" else _numbers
        rows = [
            {"object": "embedding", "index": index, "embedding": form(vector)}
            for index, vector in enumerate(vectors)
        ]
        tokens = sum(map(len, ids))
        counts = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": rows, "model": name, "usage": counts}

    def _ids(self, number: int, given: str | list[int]) -> list[int]:
        """Token ids of a text, which is refused where it is longer than the context."""
        what, context = f"text {number}", self._model.manifest.context
        ids = self._encoded(given, what) if isinstance(given, str) else given
        if context is not None and len(ids) > context:
            raise too_long(f"{what} has {len(ids)} tokens", context)
        return ids

    def _encoded(self, given: str, what: str) -> list[int]:
        check_length(given, self._model.manifest.context, what)
        check_tokens(self._tokenizer, given, self._model.manifest.context, what)
        with telling_failures():
            ids: list[int] = self._tokenizer.encode(given).ids
            return ids


def _numbers(vector: Array) -> list[float]:
    return [float(value) for value in vector]


def _base64(vector: Array) -> str:
    """The bytes of little-endian float32, as clients decode them."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
