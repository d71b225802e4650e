"""Ids of our GGUF vocabularies as llama.cpp itself computes them, where its Python package is."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from maxtool import tokenizer as room
from maxtool.tokenizer import pretokenization
from maxtool.weights.formats import gguf

sys.path.insert(0, str(Path(__file__).parent))
import tokenizer_samples as samples

pytestmark = pytest.mark.peers
llama_cpp = pytest.importorskip("llama_cpp", reason="needs llama-cpp-python")

# Where llama.cpp does not do what the published tokenizer.json does, ours follows the latter. It
# normalizes nothing; it has no \p{M} in some expressions; its \s misses some spaces of Unicode.
UNNORMALIZED = {"decomposed", "jamo"}
WITHOUT_MARKS = {"decomposed", "Hebrew", "Hindi", "Bengali", "Tamil", "Thai", "Khmer"}
DIFFERENT = {
    **{name: UNNORMALIZED for name, row in pretokenization.TABLE.items() if row.normalizer},
    **dict.fromkeys(("tekken", "gpt-4o", "llama4", "kanana2", "minimax-m2"), WITHOUT_MARKS),
    **{name: {"private and odd"} for name in ("deepseek-llm", "deepseek-coder")},
}


def llama(folder: Path, keys: Mapping[str, Any]) -> Any:
    """llama.cpp's vocabulary of a file with these keys and no tensors."""
    sizes = ("context_length", "embedding_length", "block_count", "feed_forward_length")
    model = {f"llama.{key}": np.uint32(1) for key in (*sizes, "attention.head_count")}
    path = folder / "vocabulary.gguf"
    gguf.write(path, [], [], {"general.architecture": "llama", **model, **keys})
    return llama_cpp.Llama(str(path), vocab_only=True, verbose=False)


def differing(folder: Path, keys: Mapping[str, Any], library: tokenizers.Tokenizer) -> set[str]:
    """The samples whose ids are not the library's."""
    theirs = llama(folder, keys)

    def ids(text: str) -> list[int]:
        return theirs.tokenize(text.encode(), add_bos=False, special=True) if text else []

    return {
        name
        for name, text in samples.MULTILINGUAL.items()
        if library.encode(text, add_special_tokens=False).ids != ids(text)
    }


def trained(row: pretokenization.PreTokenizer) -> tokenizers.Tokenizer:
    """A vocabulary made of the samples, split and normalized as the row says."""
    root = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": row.normalizer} if row.normalizer else None,
        "pre_tokenizer": pretokenization.pre_tokenizer(row),
        "model": json.loads(tokenizers.Tokenizer(models.BPE()).to_str())["model"],
    }
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(root))
    trainer = trainers.BpeTrainer(
        vocab_size=4000,
        show_progress=False,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    # llama.cpp takes a piece like </s> for a special token, whatever its type.
    texts = [text for name, text in samples.MULTILINGUAL.items() if name != "special tokens"]
    tokenizer.train_from_iterator(texts * 3, trainer)
    return tokenizer


@pytest.mark.parametrize("name", pretokenization.TABLE)
def test_byte_level(tmp_path: Path, name: str) -> None:
    library = trained(pretokenization.TABLE[name])
    (tmp_path / "tokenizer.json").write_text(library.to_str())
    ours = room.read(tmp_path)
    assert ours is not None
    assert isinstance(ours.vocabulary, room.BytePairs)
    named = dataclasses.replace(ours, vocabulary=dataclasses.replace(ours.vocabulary, pre=name))
    keys = room.to_gguf(named, {}, library.get_vocab_size())
    assert differing(tmp_path, keys, library) == DIFFERENT.get(name, set())


SENTENCEPIECE: dict[str, dict[str, Any]] = {
    "llama": {},
    "no prefix": {"add_dummy_prefix": False},
    "gemma": {
        "add_dummy_prefix": False,
        "user_defined_symbols": [
            "\u2581\u2581",
            "\u2581\u2581\u2581\u2581",
            "\n\n",
            "<table>",
            "[INST]",
        ],
    },
}

UNIGRAM = {"model_type": "unigram", "byte_fallback": False}
SENTENCEPIECE |= {
    "t5": {**UNIGRAM, "remove_extra_whitespaces": True},
    "t5, nfkc": {
        **UNIGRAM,
        "remove_extra_whitespaces": True,
        "normalization_rule_name": "nmt_nfkc",
    },
}
# The visible space, typed as it is, is a space to llama.cpp's user-defined tokens, and none at the
# end of a text for its unigram models.
OTHERWISE = {kind: {"the visible space"} for kind in ("gemma", "t5")}


@pytest.mark.parametrize("kind", SENTENCEPIECE)
def test_sentencepiece(tmp_path: Path, kind: str) -> None:
    model = samples.train_sentencepiece(**SENTENCEPIECE[kind])
    ours = room.read(samples.sentencepiece_folder(tmp_path, model))
    assert ours is not None
    assert ours.vocabulary is not None
    keys = room.to_gguf(ours, {}, len(ours.vocabulary.tokens))
    back = room.from_gguf(keys)
    assert back is not None
    library = tokenizers.Tokenizer.from_str(room.to_json(back))
    assert differing(tmp_path, keys, library) == OTHERWISE.get(kind, set())
