"""GPT-SW3's tokenizer, beside transformers' class and SentencePiece itself."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers

import maxtool.tokenizer as room
from maxtool.errors import ConfigurationError
from maxtool.tokenizer import Tokenizer, huggingface

from . import tokenizer_samples as samples

CLASS = "GPTSw3Tokenizer"
TOKENS = ["<pad>", "<s>", "<|endoftext|>"]
# Options of SentencePiece's trainer.
MODELS: dict[str, dict[str, Any]] = {
    "bpe": {},
    "without prefix": {"add_dummy_prefix": False},
    "fewer spaces": {"remove_extra_whitespaces": True},
    "unigram": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
}
CLEANED = (
    *("a\u00a0b", "a\u2003b c", "soft\u00adhyphen", "zero\u200bwidth", "tab\tand\nline"),
    *("e\u0301t\u00e9", "a\x00b\x1fc\x7fd\x85e\x9ff", "\u3000the\u202fball\ufffc", "\u2002 the"),
)
MIXED = ("the <|endoftext|> ball", "<s>the ball<|endoftext|>", "<|endoftext|>", "a<pad>\u00a0b")


@cache
def trained(kind: str) -> bytes:
    return samples.train_sentencepiece(control_symbols=TOKENS, bos_id=-1, eos_id=-1, **MODELS[kind])


def folder(path: Path, kind: str, **config: object) -> Path:
    (path / "spiece.model").write_bytes(trained(kind))
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": CLASS, **config}))
    return path


def read(path: Path) -> Tokenizer:
    found = huggingface.read(path)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", MODELS)
def test_plain_texts_are_those_of_sentencepiece(kind: str, tmp_path: Path) -> None:
    """Cut texts as SentencePiece does, with no token around them."""
    ours = tokenizers.Tokenizer.from_str(room.to_json(read(folder(tmp_path, kind))))
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained(kind))
    for text in ("Once upon a time", "the  ball ", " play"):
        assert ours.encode(text).ids == processor.encode(text), text


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", MODELS)
def test_the_same_as_transformers(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    source = folder(tmp_path, kind)
    ours = tokenizers.Tokenizer.from_str(room.to_json(read(source)))
    theirs = transformers.GPTSw3Tokenizer.from_pretrained(source)
    for text in (*CLEANED, *MIXED, *samples.TEXTS, *samples.MULTILINGUAL.values()):
        expected = theirs(text)["input_ids"]
        assert ours.encode(text).ids == expected, text
    tokenizer = read(source)
    for name in ("bos", "eos", "unk", "pad"):
        assert tokenizer.special_ids[name] == getattr(theirs, f"{name}_token_id"), name


def test_the_largest_has_other_tokens(tmp_path: Path) -> None:
    ids = read(folder(tmp_path, "bpe", name_or_path="AI-Sweden-Models/gpt-sw3-7b")).special_ids
    assert ids["bos"] == ids["eos"] and ids["pad"] == ids["unk"]
    assert room.read(folder(tmp_path, "bpe", tokenizer_class="OtherTokenizer")) is None


def test_gguf_has_no_form_for_it(tmp_path: Path) -> None:
    """Texts would be cut as they are, where the class cleans them first."""
    with pytest.raises(ConfigurationError, match="GGUF has no form for this tokenizer"):
        room.to_gguf(read(folder(tmp_path, "bpe")), {}, 500)
