"""Tokenizers with more tokens than their models have rows."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors, trainers

from maxtool import tokenizer as room
from maxtool.errors import ConfigurationError, MalformedFile
from maxtool.tokenizer import fitted

sys.path.insert(0, str(Path(__file__).parent))
import tokenizer_samples as samples

DATA = Path(__file__).parents[1] / "data"
UNKNOWN = "<unk>"


def byte_level() -> tokenizers.Tokenizer:
    return samples.train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))


def unigram() -> tokenizers.Tokenizer:
    result = tokenizers.Tokenizer(models.Unigram())
    trainer = trainers.UnigramTrainer(vocab_size=200, unk_token=UNKNOWN, special_tokens=[UNKNOWN])
    result.train_from_iterator(samples.corpus(), trainer)
    return result


def words() -> tokenizers.Tokenizer:
    result = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    result.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(vocab_size=60, special_tokens=[UNKNOWN])
    result.train_from_iterator(samples.corpus(), trainer)
    return result


LIBRARY = {"byte-level": byte_level, "unigram": unigram, "words": words}


def read(folder: Path, text: str, **config: Any) -> room.Tokenizer:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    result = room.read(folder)
    assert result is not None
    return result


def ids(tokenizer: room.Tokenizer, text: str) -> list[int]:
    library = tokenizers.Tokenizer.from_str(room.to_json(tokenizer))
    result: list[int] = library.encode(text).ids
    return result


def test_one_that_fits_is_the_same(tmp_path: Path) -> None:
    source = read(tmp_path, byte_level().to_str())
    for rows in (source.size, source.size + 1, source.size * 2):
        assert fitted(source, rows) == (source, [])


@pytest.mark.parametrize("kind", sorted(LIBRARY))
def test_added_tokens_without_rows(tmp_path: Path, kind: str) -> None:
    """Encode the rest as before, and the removed tokens' text as any other."""
    plain = LIBRARY[kind]()
    rows = plain.get_vocab_size()
    before = read(tmp_path / "before", plain.to_str())
    plain.add_special_tokens(["<|a|>", "<|b|>"])
    plain.add_tokens(["little girl"])
    named = {"eos_token": "<|a|>", "pad_token": "<|b|>"}
    source = read(tmp_path / "after", plain.to_str(), **named)
    cut, notes = fitted(source, rows)
    for text in (*samples.TEXTS, "a<|a|> little girl"):
        assert ids(cut, text) == ids(before, text)
    assert "tokens and the model" in notes[0]
    assert "'<|a|>', '<|b|>', 'little girl' left out" in notes[0]
    assert f"eos ({rows}), pad ({rows + 1})" in notes[1]
    assert not {"eos", "pad"} & set(cut.special_ids)
    assert cut.size == rows
    assert fitted(cut, rows) == (cut, [])


@pytest.fixture(scope="module", params=[*LIBRARY, "bpe", "bert"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tokenizer of each kind."""
    folder = tmp_path_factory.mktemp("whole")
    if request.param == "bert":
        return room.read(DATA / "tiny-bert")
    if request.param == "bpe":
        return room.read(samples.sentencepiece_folder(folder, samples.train_sentencepiece()))
    return read(folder, LIBRARY[request.param]().to_str())


@settings(max_examples=25)
@given(data=st.data())
def test_no_id_is_beyond_the_rows(whole: room.Tokenizer, data: st.DataObject) -> None:
    """Cut anywhere: merges that need removed tokens go too."""
    rows = data.draw(st.integers(min(300, whole.size - 1), whole.size))
    text = data.draw(st.sampled_from(samples.TEXTS) | st.text(max_size=40))
    cut, _ = fitted(whole, rows)
    assert cut.size <= rows
    try:
        result = ids(cut, text)
    except ConfigurationError as error:  # SentencePiece's characters come last
        assert "characters that are not pieces" in str(error)
        return
    assert all(i < rows for i in result)


def test_a_sentencepiece_model_is_cut_before_it_is_filled_up(tmp_path: Path) -> None:
    decoder = {"500": {"content": "<|end|>", "special": True}}
    model = samples.train_sentencepiece()
    source = room.read(samples.sentencepiece_folder(tmp_path, model, added_tokens_decoder=decoder))
    assert source is not None
    cut, _ = fitted(source, source.size - 1)
    keys = room.to_gguf(cut, {"pad_token_id": source.size}, source.size - 1)
    plain = replace(source, added=())
    assert repr(keys) == repr(room.to_gguf(plain, {}, source.size - 1))


def test_ends_beyond_the_rows(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 5000]}')
    source = read(tmp_path, byte_level().to_str())
    cut, notes = fitted(source, source.size)
    assert cut.eos_token_ids == (1,)
    assert cut.json == source.json
    assert notes == ["left out as the model has no row for it: end (5000)"]


def around(kind: str, token: str, i: int) -> Any:
    if kind == "template":
        return processors.TemplateProcessing(single=f"$A {token}", special_tokens=[(token, i)])
    end = (token, i)
    result = processors.BertProcessing(end, end)
    return result if kind == "bert" else processors.Sequence([result])


@pytest.mark.parametrize("kind", ["template", "bert", "sequence"])
def test_what_is_put_around_every_text_is_needed(tmp_path: Path, kind: str) -> None:
    library = byte_level()
    rows = library.get_vocab_size()
    library.add_special_tokens(["<|a|>"])
    library.post_processor = around(kind, "<|a|>", rows)
    source = read(tmp_path, library.to_str())
    with pytest.raises(ConfigurationError, match="needs tokens") as raised:
        fitted(source, rows)
    assert raised.value.problems == (f"'<|a|>' ({rows})",)


def test_an_end_that_is_added_is_needed(tmp_path: Path) -> None:
    decoder = {"500": {"content": "<|end|>", "special": True}}
    config = {"added_tokens_decoder": decoder, "add_eos_token": True}
    (tmp_path / "config.json").write_text('{"eos_token_id": 500}')
    model = samples.train_sentencepiece()
    source = room.read(samples.sentencepiece_folder(tmp_path, model, **config))
    assert source is not None
    with pytest.raises(ConfigurationError, match="needs tokens") as raised:
        fitted(source, 500)
    assert raised.value.problems == ("'<|end|>' (500)",)


@pytest.mark.parametrize("kind", ["unigram", "words"])
def test_the_unknown_token_is_needed(tmp_path: Path, kind: str) -> None:
    root = json.loads(LIBRARY[kind]().to_str())
    model, count = root["model"], len(root["model"]["vocab"])
    root["added_tokens"] = []
    if kind == "unigram":
        model["vocab"].append(["<other>", 0.0])
        model["unk_id"] = count
    else:
        model["vocab"]["<other>"], model["unk_token"] = count, "<other>"
    source = read(tmp_path, json.dumps(root))
    with pytest.raises(ConfigurationError, match="needs tokens"):
        fitted(source, count)


def test_an_id_that_is_no_tokens_is_refused_where_it_is_added(tmp_path: Path) -> None:
    """Refuse an id with a row in the table but without a text."""
    config = {"add_bos_token": True}
    (tmp_path / "config.json").write_text('{"bos_token_id": 600, "vocab_size": 640}')
    model = samples.train_sentencepiece()
    source = room.read(samples.sentencepiece_folder(tmp_path, model, **config))
    assert source is not None
    with pytest.raises(MalformedFile, match="bos is 600"):
        room.to_json(fitted(source, 640)[0])
