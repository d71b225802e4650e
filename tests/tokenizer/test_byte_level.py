"""Byte-level BPE: ids against the tokenizers library's own file that the vocabulary came from."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers

from maxtool import tokenizer as room
from maxtool.errors import ConfigurationError, MalformedFile
from maxtool.tokenizer import pretokenization

sys.path.insert(0, str(Path(__file__).parent))
import tokenizer_samples as samples

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
DEEPSEEK = (  # with line ends as they are, where the others have them as escapes
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)


def split(*regexes: str) -> pre_tokenizers.PreTokenizer:
    splits = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in regexes]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*splits, byte_level])


# How published tokenizers of these names are built.
PUBLISHED: dict[str, dict[str, Any]] = {
    "gpt-2": {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False)},
    "smollm": {
        "pre_tokenizer": pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    },
    "llama-bpe": {"pre_tokenizer": split(LLAMA3), "ignore_merges": True},
    "qwen2": {"pre_tokenizer": split(QWEN2), "normalizer": normalizers.NFC()},
    "olmo": {
        "pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "normalizer": normalizers.NFC(),
    },
    "dbrx": {"pre_tokenizer": split(CL100K)},
    "deepseek-v3": {"pre_tokenizer": split(r"\p{N}{1,3}", "[一-龥\u3040-ゟ\u30a0-ヿ]+", DEEPSEEK)},
    "falcon": {
        "pre_tokenizer": pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
                pre_tokenizers.Digits(individual_digits=False),
                pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
            ]
        )
    },
}


@pytest.fixture(scope="module")
def trained() -> dict[str, tokenizers.Tokenizer]:
    return {name: samples.train_byte_level(**options) for name, options in PUBLISHED.items()}


def folder_of(folder: Path, text: str, **config: object) -> Path:
    (folder / "tokenizer.json").write_text(text)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def keys_of(folder: Path, tokenizer: tokenizers.Tokenizer) -> dict[str, Any]:
    config = {"eos_token": "<|endoftext|>"}
    ours = room.read(folder_of(folder, tokenizer.to_str(), **config))
    assert ours is not None
    return dict(room.to_gguf(ours, {}, tokenizer.get_vocab_size() + 3))


@pytest.mark.parametrize("name", PUBLISHED)
def test_through_gguf(
    trained: Mapping[str, tokenizers.Tokenizer], tmp_path: Path, name: str
) -> None:
    original = trained[name]
    keys = keys_of(tmp_path, original)
    assert keys["tokenizer.ggml.model"] == "gpt2"
    assert keys["tokenizer.ggml.pre"] == name
    assert keys["tokenizer.ggml.eos_token_id"] == original.token_to_id("<|endoftext|>")
    size = original.get_vocab_size()
    assert keys["tokenizer.ggml.tokens"][size:] == [f"[PAD{size + i}]" for i in range(3)]
    assert keys["tokenizer.ggml.token_type"].tolist()[size - 1 :] == [4, 5, 5, 5]
    back = room.from_gguf(keys)
    assert back is not None
    library = tokenizers.Tokenizer.from_str(room.to_json(back))

    @settings(max_examples=100, deadline=None)
    @given(st.text(max_size=60))
    def same(text: str) -> None:
        ids = original.encode(text, add_special_tokens=False).ids
        assert library.encode(text, add_special_tokens=False).ids == ids
        assert library.decode(ids) == original.decode(ids)

    same()
    for text in [*samples.TEXTS, *samples.MULTILINGUAL.values(), "a<|endoftext|>b", "a <tool> b"]:
        ids = original.encode(text, add_special_tokens=False).ids
        assert library.encode(text, add_special_tokens=False).ids == ids


def test_merges_equal_what_gguf_reads(
    trained: Mapping[str, tokenizers.Tokenizer], tmp_path: Path
) -> None:
    import gguf

    keys = keys_of(tmp_path, trained["smollm"])
    theirs = gguf.SpecialVocab(tmp_path, load_merges=True)
    assert keys["tokenizer.ggml.merges"] == theirs.merges
    assert {"eos": int(keys["tokenizer.ggml.eos_token_id"])} == theirs.special_token_ids


def test_a_json_is_kept_and_a_gguf_vocabulary_becomes_one(
    trained: Mapping[str, tokenizers.Tokenizer], tmp_path: Path
) -> None:
    text = trained["gpt-2"].to_str()
    tokenizer = room.read(folder_of(tmp_path, text))
    assert tokenizer is not None
    assert room.to_json(tokenizer) == text
    back = room.from_gguf(keys_of(tmp_path, trained["gpt-2"]))
    assert back is not None
    (tmp_path / "out").mkdir()
    names = [path.name for path in room.write_hf(back, tmp_path / "out")]
    assert names == ["tokenizer.json", "tokenizer_config.json"]
    again = room.read(tmp_path / "out")
    assert again is not None
    assert isinstance(again.vocabulary, room.BytePairs)
    assert isinstance(back.vocabulary, room.BytePairs)
    assert again.vocabulary.tokens == back.vocabulary.tokens[:-3], "the padding is the model's"
    assert again.vocabulary.types == back.vocabulary.types[:-3]
    assert again.vocabulary.merges == back.vocabulary.merges
    assert again.special_ids == back.special_ids


@pytest.mark.parametrize("name", pretokenization.TABLE)
def test_every_row_finds_itself_or_its_twin(name: str) -> None:
    row = pretokenization.TABLE[name]
    root = {
        "pre_tokenizer": pretokenization.pre_tokenizer(row),
        "normalizer": {"type": row.normalizer} if row.normalizer else None,
        "model": {"ignore_merges": row.ignore_merges},
    }
    result, reason = pretokenization.find(root)
    assert result is not None, reason
    twin = pretokenization.TABLE[result]
    assert (twin.regexes, twin.normalizer) == (row.regexes, row.normalizer)
    assert twin.ignore_merges == row.ignore_merges


def test_no_name_for_a_splitting(tmp_path: Path) -> None:
    odd = samples.train_byte_level(split(r"\w+|\W"))
    ours = room.read(folder_of(tmp_path, odd.to_str()))
    assert ours is not None
    with pytest.raises(ConfigurationError, match="no GGUF name"):
        room.to_gguf(ours, {}, 1000)


def test_an_unknown_name_lists_the_known(
    trained: Mapping[str, tokenizers.Tokenizer], tmp_path: Path
) -> None:
    keys = {**keys_of(tmp_path, trained["gpt-2"]), "tokenizer.ggml.pre": "brand-new"}
    with pytest.raises(ConfigurationError, match=r"brand-new.*gpt-2.*qwen2"):
        room.from_gguf(keys)


BROKEN: dict[str, dict[str, object]] = {
    "tokens missing": {"tokens": None},
    "tokens no strings": {"tokens": [1, 2]},
    "a token twice": {"tokens": ["a", "a"], "token_type": np.ones(2, np.int32)},
    "types too short": {"token_type": np.ones(3, np.int32)},
    "types of another kind": {"token_type": ["x"]},
    "unknown type": {"tokens": ["a"], "token_type": np.array([9]), "merges": []},
    "merge of nothing": {"merges": ["a"]},
    "merge of strangers": {"merges": ["zzz yyy"]},
    "id out of range": {"eos_token_id": np.uint32(99999)},
    "id no integer": {"eos_token_id": "2"},
    "id a truth value": {"eos_token_id": True},
    "flag no truth value": {"add_bos_token": 3},
}


@pytest.mark.parametrize("case", BROKEN)
def test_malformed_keys(
    trained: Mapping[str, tokenizers.Tokenizer], tmp_path: Path, case: str
) -> None:
    good = keys_of(tmp_path, trained["gpt-2"])
    bad = {**good, **{f"tokenizer.ggml.{key}": value for key, value in BROKEN[case].items()}}
    with pytest.raises(MalformedFile):
        room.from_gguf(bad)


def test_chat_templates_travel_as_text(
    trained: Mapping[str, tokenizers.Tokenizer], tmp_path: Path
) -> None:
    templates = [{"name": "default", "template": "{{ a }}"}, {"name": "tool", "template": "{{b}}"}]
    text = trained["gpt-2"].to_str()
    ours = room.read(folder_of(tmp_path, text, chat_template=templates))
    assert ours is not None
    keys = room.to_gguf(ours, {}, 1000)
    assert keys["tokenizer.chat_template"] == "{{ a }}"
    assert keys["tokenizer.chat_template.tool"] == "{{b}}"
    assert keys["tokenizer.chat_templates"] == ["tool"]
    back = room.from_gguf(keys)
    assert back is not None
    assert back.chat_templates == {"default": "{{ a }}", "tool": "{{b}}"}


def test_a_sentencepiece_json_becomes_a_llama_vocabulary(tmp_path: Path) -> None:
    model = samples.train_sentencepiece()
    first = room.read(samples.sentencepiece_folder(tmp_path, model))
    assert first is not None
    (tmp_path / "json").mkdir()
    second = room.read(folder_of(tmp_path / "json", room.to_json(first)))
    assert second is not None
    back = room.from_gguf(room.to_gguf(second, {}, len(second.vocabulary.tokens)))  # type: ignore[union-attr]
    assert back is not None
    a, b = (tokenizers.Tokenizer.from_str(room.to_json(t)) for t in (first, back))
    for text in samples.TEXTS:
        ids = a.encode(text, add_special_tokens=False).ids
        assert b.encode(text, add_special_tokens=False).ids == ids


@pytest.mark.parametrize(
    "change",
    [
        lambda root: root["model"]["vocab"].update({"zz": 3}),
        lambda root: root["model"]["merges"].append(["no", "such"]),
        lambda root: root["added_tokens"].append(dict(root["added_tokens"][0])),
        lambda root: root["model"]["vocab"].update({"far": 10**9}),
        lambda root: root.pop("model"),
    ],
)
def test_malformed_json(
    trained: Mapping[str, tokenizers.Tokenizer],
    tmp_path: Path,
    change: Callable[[dict[str, Any]], object],
) -> None:
    root = json.loads(trained["gpt-2"].to_str())
    change(root)
    with pytest.raises(MalformedFile):
        room.read(folder_of(tmp_path, json.dumps(root)))


@pytest.mark.parametrize("prefix", ["x" * 300, "é"])
def test_a_prefix_that_merges_lack_never_reaches_the_library(
    trained: Mapping[str, tokenizers.Tokenizer],
    tmp_path: Path,
    prefix: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The library cuts it off without looking, and panics."""
    root = json.loads(trained["gpt-2"].to_str())
    root["model"]["continuing_subword_prefix"] = prefix
    with pytest.raises(MalformedFile, match="merges lack the prefix"):
        room.read(folder_of(tmp_path, json.dumps(root)))
    assert capfd.readouterr().err == ""


def test_any_part_of_a_json_replaced_by_anything(tmp_path: Path) -> None:
    """A tokenizer.json is read, or refused with an error of ours: nothing else happens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 3)]
    )
    good = tokenizer.to_str()
    paths = list(paths_of(json.loads(good)))
    scalars = st.none() | st.booleans() | st.integers(-3, 5) | st.text(max_size=3)
    anything = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(), scalars)

    @settings(max_examples=200, deadline=None)
    @given(st.sampled_from(paths), anything)
    def replaced(path: tuple[Any, ...], value: object) -> None:
        root = json.loads(good)
        place = root
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value
        with contextlib.suppress(MalformedFile, ConfigurationError):
            result = room.read(folder_of(tmp_path, json.dumps(root)))
            assert result is not None
            room.to_gguf(result, {}, 100)

    replaced()


def paths_of(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    children: Any = value.items() if isinstance(value, dict) else ()
    children = enumerate(value) if isinstance(value, list) else children
    for key, child in children:
        yield (*path, key)
        yield from paths_of(child, (*path, key))


def test_any_gguf_value_replaced_by_anything(
    trained: Mapping[str, tokenizers.Tokenizer], tmp_path: Path
) -> None:
    good = keys_of(tmp_path, trained["gpt-2"])
    scalars = st.none() | st.booleans() | st.integers(-3, 500) | st.text(max_size=3) | st.floats()
    arrays = st.lists(st.text(max_size=3), max_size=4) | st.lists(st.integers(), max_size=4)
    numbers = st.lists(st.integers(-1, 9), max_size=4).map(np.array)

    @settings(max_examples=200, deadline=None)
    @given(st.sampled_from(sorted(good)), scalars | arrays | numbers)
    def replaced(key: str, value: object) -> None:
        with contextlib.suppress(MalformedFile, ConfigurationError):
            result = room.from_gguf({**good, key: value})
            if result is not None:
                room.to_json(result)

    replaced()


def test_ends_of_turns_are_known_by_name() -> None:
    """Recognise ends of turns by name: many GGUF files name one end token only."""
    tokens = ["a", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<tool>"]
    keys = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([1, 3, 3, 1, 4], np.int32),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": np.uint32(2),
    }
    result = room.from_gguf(keys)
    assert result is not None
    assert result.eos_token_ids == (2, 1), "a plain token of such a name is text"
    assert result.special_tokens == {"eos_token": "<|endoftext|>"}


@pytest.mark.parametrize("word", ["none", "no_vocab"])
def test_a_file_may_say_that_it_has_no_tokenizer(word: str) -> None:
    """Read both words that llama.cpp reads; its converter writes the first."""
    assert room.from_gguf({"tokenizer.ggml.model": word}) is None
