"""A ``tokenizer.json`` without the tokens from some id on; all else in it as it stood."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from maxtool.errors import ConfigurationError


def cut_json(text: str, rows: int) -> tuple[str, dict[int, str]]:
    """Leave out tokens whose ids are not below ``rows``, and the merges that need them.

    Gives the text of a ``tokenizer.json`` that the library takes, and the tokens that it has no
    more, by id; an error as in :func:`maxtool.tokenizer.fitting.fitted`.
    """
    root = json.loads(text)
    model, added = root["model"], root.get("added_tokens") or []
    gone = {i: token for token, i in tokens_of(model) if i >= rows}
    gone |= {token["id"]: token["content"] for token in added if token["id"] >= rows}
    _check_needed(root, gone)
    vocab = model["vocab"]
    whole = isinstance(vocab, list)
    model["vocab"] = vocab[:rows] if whole else {t: i for t, i in vocab.items() if i < rows}
    if "merges" in model:
        prefix = len(model.get("continuing_subword_prefix") or "")
        pairs = ((merge, *pair_of(merge)) for merge in model["merges"])
        model["merges"] = [
            merge
            for merge, left, right in pairs
            if model["vocab"].keys() >= {left, right, left + right[prefix:]}
        ]
    if added:
        root["added_tokens"] = [token for token in added if token["id"] < rows]
    return json.dumps(root, ensure_ascii=False, indent=1), gone


def tokens_of(model: Any) -> Iterator[tuple[str, int]]:  # noqa: ANN401 - JSON
    """The tokens of a model with their ids; a unigram model lists them with their scores."""
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        yield from vocab.items()
    else:
        yield from ((token, i) for i, (token, _score) in enumerate(vocab))


def pair_of(merge: str | list[str]) -> tuple[str, str]:
    """A merge in the spelling of old files ("a b") or of new ones (["a", "b"])."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _check_needed(root: Any, gone: dict[int, str]) -> None:  # noqa: ANN401 - JSON
    model = root["model"]
    unknown = [i for i, token in gone.items() if token == model.get("unk_token")]
    needed = {*unknown, model.get("unk_id"), *_around(root.get("post_processor"))}
    lacking = [f"{gone[i]!r:.80} ({i})" for i in sorted(needed & gone.keys())]
    if lacking:
        raise ConfigurationError(
            "tokenizer.json needs tokens that the model has no rows for", problems=lacking
        )


def _around(processor: Any) -> Iterator[int]:  # noqa: ANN401 - JSON
    """The ids that a post-processor puts around texts."""
    match processor:
        case {"type": "Sequence", "processors": [*parts]}:
            for part in parts:
                yield from _around(part)
        case {"type": "TemplateProcessing"}:
            for token in processor["special_tokens"].values():
                yield from token["ids"]
        case {"cls": [_, int(first)], "sep": [_, int(last)]}:
            yield from (first, last)
