"""``/v1/rerank``: documents in the order in which they answer a query.

The fields are those that Cohere's and Jina's APIs have, and llama.cpp's server and vLLM too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from maxtool.runtime.loader import Model
from maxtool.runtime.loader.classifier import Classifier
from maxtool.runtime.loader.specs import CLASSIFY
from maxtool.runtime.loader.tokens import check_length, too_long
from maxtool.serve.fields import Reader, anything, flag, read, text, whole
from maxtool.serve.refusal import Refusal, wrong

MOST_DOCUMENTS, ROWS = 2048, 32


def documents(value: object) -> list[str]:
    """Read a list of texts, each a string or an object with one as its ``text``."""
    if not isinstance(value, list) or not 0 < len(value) <= MOST_DOCUMENTS:
        raise ValueError(f"must be a list of 1 to {MOST_DOCUMENTS} texts")
    return [text(one["text"] if _is_object(one) else one) for one in value]


def _is_object(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"text"}


RERANKING: Mapping[str, Reader] = {
    "model": text,
    "query": text,
    "documents": documents,
    "top_n": whole(1),
    "return_documents": flag,
    "instruction": text,
    "user": anything,
}


class Ranks:
    """A model that scores pairs of texts."""

    def __init__(self, name: str, model: Model) -> None:
        self._name, self._model = name, model

    def made(self, content: Mapping[str, Any], go_on: Callable[[], None]) -> dict[str, object]:
        """The JSON of an answer: the best documents first, equal ones in their order."""
        self._check()
        values = read(content, RERANKING)
        if missing := [name for name in ("query", "documents") if name not in values]:
            raise wrong(missing[0], "is missing")
        if "instruction" in values and self._model.manifest.pair_template is None:
            raise wrong("instruction", "is for models whose template has a place for it")
        query, texts = values["query"], values["documents"]
        self._check_lengths(query, texts, values.get("instruction", ""))
        classifier = Classifier(self._model, ROWS, go_on, instruction=values.get("instruction"))
        logits = np.concatenate(list(classifier.stream(texts, query)))
        if classifier.truncated:
            what = f"{classifier.truncated} of {len(texts)} documents, with the query,"
            raise too_long(f"{what} are longer", self._model.manifest.context)
        scores = classifier.scores(logits)[:, 0]
        order = np.argsort(-scores, kind="stable")[: values.get("top_n")]
        shown = values.get("return_documents", False)
        results = [
            {"index": int(index), "relevance_score": float(scores[index])}
            | ({"document": {"text": texts[index]}} if shown else {})
            for index in order
        ]
        counts = {"prompt_tokens": classifier.tokens, "total_tokens": classifier.tokens}
        return {"object": "list", "model": self._name, "results": results, "usage": counts}

    def _check(self) -> None:
        """Refuse a model that does not give pairs of texts one score."""
        entry = self._model.manifest.entries.get(CLASSIFY)
        labels = entry.outputs[0].shape[-1] if entry else 0
        if labels != 1:
            what = f"tells {labels} classes apart" if labels else "makes vectors, and no scores"
            raise Refusal(400, f"the model {what}: rerankers give a pair of texts one score")

    def _check_lengths(self, query: str, texts: list[str], instruction: str) -> None:
        """Refuse texts that no context holds, before they are looked at."""
        context = self._model.manifest.context
        check_length(query, context, "the query")
        check_length(instruction, context, "the instruction")
        for number, one in enumerate(texts, start=1):
            check_length(one, context, f"document {number}")
