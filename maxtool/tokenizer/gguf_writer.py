"""The ``tokenizer.ggml.*`` keys of a GGUF file, written; ``gguf.py`` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maxtool.errors import ConfigurationError
from maxtool.tokenizer import pretokenization, wordpiece
from maxtool.tokenizer.gguf import ASSUMED_SPACES, MODELS, ROOT, SOURCE, SPECIAL_KEYS, TEMPLATE
from maxtool.tokenizer.vocabulary import (
    BytePairs,
    SentencePiece,
    Tokenizer,
    TokenType,
    WordPieces,
    check_ids,
)
from maxtool.tokenizer.wordpiece import LLAMA_CPP_CLS


def to_gguf(
    tokenizer: Tokenizer, config: Mapping[str, object], vocab_size: int
) -> dict[str, object]:
    """The keys that describe a tokenizer, typed as :func:`maxtool.weights` writers expect.

    The model's ``config.json`` gives special ids that the tokenizer does not name; those that are
    not a token's are left out. The vocabulary is padded to ``vocab_size``, the embedding's rows.
    """
    vocabulary = tokenizer.vocabulary
    if vocabulary is None:
        what = "GGUF output knows SentencePiece, byte-level BPE and BERT's WordPiece"
        raise ConfigurationError(what)
    if isinstance(vocabulary, SentencePiece):
        keys = _sentencepiece_keys(vocabulary.extended(tokenizer.added, vocab_size))
    elif isinstance(vocabulary, WordPieces):
        columns = wordpiece.gguf_columns(vocabulary, vocab_size)
        keys = {f"{ROOT}{name}": column for name, column in columns.items()}
    else:
        keys = _byte_pairs_keys(vocabulary, vocab_size)
    count = len(keys[f"{ROOT}tokens"])
    if count > vocab_size:
        what = f"the tokenizer has {count} tokens and the model {vocab_size} rows for them"
        raise ConfigurationError(what)
    ids = dict(tokenizer.special_ids)
    for name in SPECIAL_KEYS:
        value = config.get(f"{name}_token_id")
        if isinstance(value, int) and not isinstance(value, bool) and value < count:
            ids.setdefault(name, value)
    if isinstance(vocabulary, SentencePiece) and vocabulary.algorithm == "unigram":
        ids.setdefault("unk", vocabulary.unknown or 0)  # llama.cpp takes it for 2
    if isinstance(vocabulary, WordPieces) and ids.get("cls") not in (None, LLAMA_CPP_CLS):
        ids.setdefault("bos", ids["cls"])  # by which name GGUF has what comes first
    check_ids(ids, count, SOURCE)
    for name, value in ids.items():
        if name in SPECIAL_KEYS:
            keys[f"{ROOT}{SPECIAL_KEYS[name]}"] = np.uint32(value)
    for name, flag in tokenizer.add.items():
        keys[f"{ROOT}add_{name}_token"] = flag
    keys.update(_template_keys(tokenizer.chat_templates))
    if isinstance(vocabulary, SentencePiece):
        keys.update(_whitespace_keys(vocabulary))
    return keys


def _sentencepiece_keys(vocabulary: SentencePiece) -> dict[str, Any]:
    if vocabulary.algorithm == "unigram" and vocabulary.byte_fallback:
        raise ConfigurationError("GGUF has no SentencePiece unigram models with byte pieces")
    return {
        f"{ROOT}model": MODELS[vocabulary.algorithm],
        f"{ROOT}pre": "default",
        f"{ROOT}tokens": list(vocabulary.pieces),
        f"{ROOT}scores": np.array(vocabulary.scores, np.float32),
        f"{ROOT}token_type": np.array(vocabulary.types, np.int32),
    }


def _whitespace_keys(vocabulary: SentencePiece) -> dict[str, Any]:
    """Return the metadata for vocabularies that differ from llama.cpp's assumptions."""
    spaces = ASSUMED_SPACES[vocabulary.algorithm]
    keys: dict[str, Any] = {}
    if vocabulary.add_dummy_prefix != spaces["add_space_prefix"]:
        keys[f"{ROOT}add_space_prefix"] = vocabulary.add_dummy_prefix
    if vocabulary.remove_extra_whitespaces != spaces["remove_extra_whitespaces"]:
        keys[f"{ROOT}remove_extra_whitespaces"] = vocabulary.remove_extra_whitespaces
    if vocabulary.charsmap:
        keys[f"{ROOT}precompiled_charsmap"] = np.frombuffer(vocabulary.charsmap, np.uint8)
    return keys


def _byte_pairs_keys(vocabulary: BytePairs, size: int) -> dict[str, Any]:
    if vocabulary.pre is None:
        known = ", ".join(pretokenization.TABLE)
        what = f"this tokenizer has no form in GGUF: {vocabulary.reason}"
        raise ConfigurationError(what, hint=f"known are {known}")
    room = range(len(vocabulary.tokens), size)
    types = [*vocabulary.types, *(TokenType.UNUSED for _ in room)]
    return {
        f"{ROOT}model": "gpt2",
        f"{ROOT}pre": vocabulary.pre,
        f"{ROOT}tokens": [*vocabulary.tokens, *(f"[PAD{i}]" for i in room)],
        f"{ROOT}token_type": np.array(types, np.int32),
        f"{ROOT}merges": [f"{left} {right}" for left, right in vocabulary.merges],
    }


def _template_keys(templates: Mapping[str, str]) -> dict[str, object]:
    named = {name: text for name, text in templates.items() if name != "default"}
    keys: dict[str, object] = {f"{TEMPLATE}.{name}": text for name, text in named.items()}
    if "default" in templates:
        keys[TEMPLATE] = templates["default"]
    if named:
        keys[f"{TEMPLATE}s"] = list(named)
    return keys
