"""The ``tokenizer.ggml.*`` keys of a GGUF file, written; ``gguf.py`` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maxtool.errors import ConfigurationError
from maxtool.tokenizer import checks, listed_merges, pretokenization, wordpiece
from maxtool.tokenizer.gguf import ASSUMED_SPACES, MODELS, ROOT, SOURCE, SPECIAL_KEYS, TEMPLATE
from maxtool.tokenizer.vocabulary import (
    BytePairs,
    SentencePiece,
    Tokenizer,
    Vocabulary,
    WordPieces,
    padded,
)
from maxtool.tokenizer.wordpiece import LLAMA_CPP_CLS


def to_gguf(
    tokenizer: Tokenizer, config: Mapping[str, object], vocab_size: int, architecture: str = ""
) -> dict[str, object]:
    """The keys that describe a tokenizer, typed as :func:`maxtool.weights` writers expect.

    The model's ``config.json`` gives special ids that the tokenizer does not name; those that are
    not a token's are left out. The vocabulary is padded to ``vocab_size``, the embedding's rows.
    It depends on the ``architecture`` in which form llama.cpp takes a SentencePiece model.
    """
    vocabulary = tokenizer.vocabulary
    if vocabulary is None:
        what = (
            "GGUF has no form for this tokenizer: it knows SentencePiece, byte-level BPE and BERT's"
            " WordPiece, each with its usual steps"
        )
        raise ConfigurationError(what)
    lists_merges = isinstance(vocabulary, SentencePiece) and architecture == listed_merges.MODEL
    if isinstance(vocabulary, SentencePiece):
        make = listed_merges.gguf_columns if lists_merges else _sentencepiece_columns
        columns = make(vocabulary.extended(tokenizer.added, vocab_size))
    elif isinstance(vocabulary, WordPieces):
        columns = wordpiece.gguf_columns(vocabulary, vocab_size)
    else:
        columns = _byte_pairs_columns(vocabulary, vocab_size)
    count = len(columns["tokens"])
    if count > vocab_size:
        what = f"the tokenizer has {count} tokens and the model {vocab_size} rows for them"
        raise ConfigurationError(what)
    ids = _special_ids(tokenizer, vocabulary, config, count)
    spaces = _whitespace_columns(vocabulary) if isinstance(vocabulary, SentencePiece) else {}
    if isinstance(vocabulary, SentencePiece) and vocabulary.algorithm == "unigram":
        columns, spaces = columns | spaces, {}  # where llama.cpp's converter has them
    columns |= {SPECIAL_KEYS[name]: np.uint32(i) for name, i in ids.items() if name in SPECIAL_KEYS}
    columns |= {f"add_{name}_token": flag for name, flag in tokenizer.add.items()}
    if lists_merges and "bos" not in tokenizer.add:  # llama.cpp puts it before every text
        spaces["add_bos_token"] = True
    return {**_keys(columns), **_template_keys(tokenizer.chat_templates), **_keys(spaces)}


def _keys(columns: Mapping[str, object]) -> dict[str, object]:
    return {f"{ROOT}{name}": column for name, column in columns.items()}


def _special_ids(
    tokenizer: Tokenizer, vocabulary: Vocabulary, config: Mapping[str, object], count: int
) -> dict[str, int]:
    ids = dict(tokenizer.special_ids)
    for name in SPECIAL_KEYS:
        value = config.get(f"{name}_token_id")
        if isinstance(value, int) and not isinstance(value, bool) and value < count:
            ids.setdefault(name, value)
    if tokenizer.add.get("sep") and "eos" in ids:
        ids.setdefault("sep", ids["eos"])
    if isinstance(vocabulary, SentencePiece) and vocabulary.algorithm == "unigram":
        ids.setdefault("unk", vocabulary.unknown or 0)  # llama.cpp takes it for 2
    if isinstance(vocabulary, WordPieces) and ids.get("cls") not in (None, LLAMA_CPP_CLS):
        ids.setdefault("bos", ids["cls"])  # by which name GGUF has what comes first
    checks.ids(ids, count, SOURCE)
    return ids


def _sentencepiece_columns(vocabulary: SentencePiece) -> dict[str, Any]:
    if vocabulary.algorithm == "unigram" and vocabulary.byte_fallback:
        raise ConfigurationError("GGUF has no SentencePiece unigram models with byte pieces")
    return {
        "model": MODELS[vocabulary.algorithm],
        "pre": "default",
        "tokens": list(vocabulary.tokens),
        "scores": np.array(vocabulary.scores, np.float32),
        "token_type": np.array(vocabulary.types, np.int32),
    }


def _whitespace_columns(vocabulary: SentencePiece) -> dict[str, Any]:
    """Return the metadata for vocabularies that differ from llama.cpp's assumptions."""
    spaces = {
        "add_space_prefix": vocabulary.add_dummy_prefix,
        "remove_extra_whitespaces": vocabulary.remove_extra_whitespaces,
    }
    assumed = ASSUMED_SPACES[vocabulary.algorithm]
    columns: dict[str, Any] = {k: flag for k, flag in spaces.items() if flag != assumed[k]}
    if vocabulary.charsmap:
        columns["precompiled_charsmap"] = np.frombuffer(vocabulary.charsmap, np.uint8)
    return columns


def _byte_pairs_columns(vocabulary: BytePairs, size: int) -> dict[str, Any]:
    if vocabulary.pre is None:
        known = ", ".join(pretokenization.TABLE)
        what = f"this tokenizer has no form in GGUF: {vocabulary.reason}"
        raise ConfigurationError(what, hint=f"known are {known}")
    tokens, types = padded(vocabulary.tokens, vocabulary.types, size)
    return {
        "model": "gpt2",
        "pre": vocabulary.pre,
        "tokens": tokens,
        "token_type": np.array(types, np.int32),
        "merges": [f"{left} {right}" for left, right in vocabulary.merges],
    }


def _template_keys(templates: Mapping[str, str]) -> dict[str, object]:
    named = {name: text for name, text in templates.items() if name != "default"}
    keys: dict[str, object] = {f"{TEMPLATE}.{name}": text for name, text in named.items()}
    if "default" in templates:
        keys[TEMPLATE] = templates["default"]
    if named:
        keys[f"{TEMPLATE}s"] = list(named)
    return keys
