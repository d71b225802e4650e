"""``/v1/embeddings``: vectors of texts."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from maxtool.runtime.loader import Model
from maxtool.runtime.loader.embedder import Embedder, prompt_of
from maxtool.runtime.loader.memory import Array
from maxtool.runtime.loader.tokens import check_length, check_tokens, telling_failures, too_long
from maxtool.serve.completion_fields import texts_or_ids
from maxtool.serve.fields import Reader, anything, one_of, read, text, whole
from maxtool.serve.refusal import wrong

MOST_TEXTS, ROWS = 2048, 32
EMBEDDING: Mapping[str, Reader] = {
    "model": text,
    "input": texts_or_ids(MOST_TEXTS),
    "encoding_format": one_of("float", "base64"),
    "dimensions": whole(1),
    "user": anything,
}


class Vectors:
    """A model that makes vectors, behind its usual prompt."""

    def __init__(self, name: str, model: Model) -> None:
        self._name, self._model = name, model
        self._tokenizer = model.open_tokenizer()
        self._width = Embedder(model).width
        self._before = prompt_of(model.manifest)

    def made(self, content: Mapping[str, Any], go_on: Callable[[], None]) -> dict[str, object]:
        """The JSON of an answer."""
        values = read(content, EMBEDDING)
        if "input" not in values:
            raise wrong("input", "is missing")
        if values.get("dimensions", self._width) != self._width:
            raise wrong("dimensions", f"must be {self._width}, which this model has")
        ids = [self._ids(number, one) for number, one in enumerate(values["input"], start=1)]
        vectors = np.concatenate(list(Embedder(self._model, ROWS, go_on).stream(ids)))
        form = _base64 if values.get("encoding_format") == "base64" else _numbers
        rows = [
            {"object": "embedding", "index": index, "embedding": form(vector)}
            for index, vector in enumerate(vectors)
        ]
        tokens = sum(map(len, ids))
        counts = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": rows, "model": self._name, "usage": counts}

    def _ids(self, number: int, given: str | list[int]) -> list[int]:
        """Token ids of a text, which is refused where it is longer than the context."""
        what, context = f"text {number}", self._model.manifest.context
        ids = self._encoded(self._before + given, what) if isinstance(given, str) else given
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
