"""DeBERTa's SentencePiece models give the ids of the tokenizer.json that is published with them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sentencepiece
import tokenizers

from maxtool import tokenizer as room
from maxtool.errors import ConfigurationError, MalformedFile
from tests.tokenizer import tokenizer_samples as samples

SPECIAL = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}
OPTIONS: dict[str, dict[str, Any]] = {
    "usual": {},
    "cut": {"do_lower_case": True, "split_by_punct": True},
}


def trained(**options: Any) -> bytes:
    pieces = {f"{name}_piece": token for name, token in SPECIAL.items()}
    ids = {f"{name}_id": number for number, name in enumerate(SPECIAL)}
    usual: dict[str, Any] = {
        "model_type": "unigram",
        "byte_fallback": False,
        "vocab_size": 300,
        "normalization_rule_name": "nmt_nfkc",
        "remove_extra_whitespaces": True,
    }
    return samples.train_sentencepiece(**{**usual, **ids, **pieces, **options})


@pytest.fixture(scope="module")
def model() -> bytes:
    return trained(user_defined_symbols="<more>")


def folder(path: Path, model: bytes, **config: Any) -> Path:
    (path / "spm.model").write_bytes(model)
    (path / "tokenizer_config.json").write_text(json.dumps({"vocab_type": "spm", **config}))
    return path


def read(path: Path) -> room.Tokenizer:
    result = room.read(path)
    assert result is not None
    return result


def library(path: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(room.to_json(read(path)))


def test_ids_are_those_of_sentencepiece(model: bytes, tmp_path: Path) -> None:
    ours = library(folder(tmp_path, model))
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    for text in ("Once upon a time", "  two  spaces\tand  ", "the ﬁ ball", samples.TEXTS[0]):
        assert ours.encode(text).ids == [1, *processor.encode(text), 2], text
    pair = ours.encode("the", "ball")
    assert pair.ids == [1, *processor.encode("the"), 2, *processor.encode("ball"), 2]
    assert pair.type_ids == sorted(pair.type_ids)
    assert {*pair.type_ids} == {0, 1}


def test_special_tokens(model: bytes, tmp_path: Path) -> None:
    tokenizer = read(folder(tmp_path, model))
    size = sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size()
    expected = {"pad": 0, "cls": 1, "sep": 2, "unk": 3, "mask": size}
    assert (tokenizer.special_ids, tokenizer.size) == (expected, size + 1)
    ours = tokenizers.Tokenizer.from_str(room.to_json(tokenizer))
    assert ours.encode("[MASK]").ids == [1, size, 2]
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[MASK]": size, "<other>": size + 1}))
    assert library(tmp_path).encode("<other>[MASK]").ids == [1, size + 1, size, 2]
    assert read(tmp_path).size == size + 2


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", OPTIONS)
def test_the_same_as_the_converter_of_transformers(
    model: bytes, tmp_path: Path, options: str
) -> None:
    slow = pytest.importorskip("transformers.convert_slow_tokenizer")
    ours = library(folder(tmp_path, model, **OPTIONS[options]))
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    switches = {"do_lower_case": False, "split_by_punct": False, **OPTIONS[options]}
    file = str(tmp_path / "spm.model")
    ids = processor.piece_to_id
    known = SimpleNamespace(vocab_file=file, convert_tokens_to_ids=ids, **switches)
    theirs = slow.DebertaV2Converter(known).converted()
    theirs.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"])
    more = ("a [MASK] b", "x<more>y", "don't stop, THE end!", "[CLS]the")
    for text in (*samples.TEXTS, *samples.MULTILINGUAL.values(), *more):
        assert ours.encode(text).ids == theirs.encode(text).ids, text
        pair, other = ours.encode("the", text), theirs.encode("the", text)
        assert (pair.ids, pair.type_ids) == (other.ids, other.type_ids), text


def test_what_is_refused(model: bytes, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unigram model"):
        room.read(folder(tmp_path, trained(model_type="bpe")))
    with pytest.raises(ConfigurationError, match="no token <begin>"):
        room.read(folder(tmp_path, model, cls_token="<begin>"))  # noqa: S106 - a token of text
    with pytest.raises(MalformedFile):
        room.read(folder(tmp_path, model[:-7]))
    assert room.read(folder(tmp_path, model, tokenizer_class="OtherTokenizer")) is None
