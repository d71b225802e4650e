"""Gemma 4's tokenizer through GGUF and back: the ids that its ``tokenizer.json`` gives."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from maxtool import tokenizer as room
from maxtool.errors import MalformedFile

sys.path.insert(0, str(Path(__file__).parent))
import tokenizer_samples as samples

UNKNOWN = "<unk>"
SPECIAL = ["<pad>", "<eos>", "<bos>", UNKNOWN, "<mask>", "<|turn>", "<turn|>", "<|tool_call>"]
# Tokens that are matched as they stand.
PLAIN = ["\n\n", "\n\n\n", "<table>", "[multimodal]", "\t\t"]
ROOT = "tokenizer.ggml."
TEXTS = {
    **dict(enumerate(samples.TEXTS)),
    **samples.MULTILINGUAL,
    "tokens": "<|turn>user\nA  <table>\n\n\n<|tool_call>x[multimodal]\n\n\t\t <turn|>\n",
    "visible": "a\u2581b \u2581 c",
}


@pytest.fixture(scope="module")
def library() -> tokenizers.Tokenizer:
    """A small tokenizer in the form of Gemma's, which splits nothing; nor joins it lines."""
    bytes_of = [f"<0x{byte:02X}>" for byte in range(256)]
    made = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN, fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "\u2581")
    ends = pre_tokenizers.Split(tokenizers.Regex(r"\n+"), "isolated")
    words = pre_tokenizers.Split("\u2581", "merged_with_next")
    made.pre_tokenizer = pre_tokenizers.Sequence([ends, words])
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence(steps)
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=[*SPECIAL[:5], *PLAIN, *SPECIAL[5:], *bytes_of],
        limit_alphabet=90,
        show_progress=False,
    )
    made.train_from_iterator(samples.corpus(), trainer)
    root = json.loads(made.to_str())
    root["added_tokens"] = []
    root["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "MergedWithPrevious",
        "invert": False,
    }
    result = tokenizers.Tokenizer.from_str(json.dumps(root))
    result.add_special_tokens([AddedToken(each, normalized=False) for each in SPECIAL])
    result.add_tokens([AddedToken(each, normalized=False) for each in PLAIN])
    return result


def folder_of(folder: Path, library: tokenizers.Tokenizer) -> Path:
    """A Hugging Face folder with the tokenizer."""
    folder.mkdir()
    (folder / "tokenizer.json").write_text(library.to_str())
    names = {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk", "mask")}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


def written(folder: Path, library: tokenizers.Tokenizer) -> dict[str, Any]:
    """The keys of a GGUF file of Gemma 4."""
    ours = room.read(folder_of(folder / "hf", library))
    assert ours is not None
    return room.to_gguf(ours, {}, library.get_vocab_size(), "gemma4")


def as_converted(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys as llama.cpp's converter has them, for which added tokens are like any others."""
    types = np.array(keys[f"{ROOT}token_type"])
    tokens = keys[f"{ROOT}tokens"]
    plain = [token in PLAIN for token in tokens]
    return {**keys, f"{ROOT}token_type": np.where(plain, 1, types)}


def differing(keys: dict[str, Any], library: tokenizers.Tokenizer) -> set[object]:
    """The texts of which a file with these keys gives other ids."""
    found = room.from_gguf(keys)
    assert found is not None
    again = tokenizers.Tokenizer.from_str(room.to_json(found))
    return {
        name
        for name, text in TEXTS.items()
        if again.encode(text, add_special_tokens=False).ids
        != library.encode(text, add_special_tokens=False).ids
    }


def test_ids_through_gguf(tmp_path: Path, library: tokenizers.Tokenizer) -> None:
    keys = written(tmp_path, library)
    assert differing(keys, library) == set()
    assert differing(as_converted(keys), library) == set()


def test_keys_are_those_of_the_converter(tmp_path: Path, library: tokenizers.Tokenizer) -> None:
    keys = written(tmp_path, library)
    names = ["model", "tokens", "scores", "token_type", "merges", "bos_token_id", "eos_token_id"]
    names += ["unknown_token_id", "padding_token_id", "mask_token_id"]
    assert [*keys] == [f"{ROOT}{name}" for name in (*names, "add_space_prefix", "add_bos_token")]
    assert keys[f"{ROOT}model"] == "gemma4"
    assert (keys[f"{ROOT}add_space_prefix"], keys[f"{ROOT}add_bos_token"]) == (False, True)
    assert set(keys[f"{ROOT}scores"].tolist()) == {-1000.0}
    merges = json.loads(library.to_str())["model"]["merges"]
    assert keys[f"{ROOT}merges"] == [" ".join(pair) for pair in merges]
    types = dict(zip(keys[f"{ROOT}tokens"], keys[f"{ROOT}token_type"].tolist(), strict=True))
    assert {token: types[token] for token in SPECIAL} == {
        **dict.fromkeys(SPECIAL, 3),
        "<|tool_call>": 4,
    }
    assert (types["<0x0A>"], types["\u2581the"], types["<table>"]) == (6, 1, 4)


def test_a_folder_of_a_gguf_file(tmp_path: Path, library: tokenizers.Tokenizer) -> None:
    """Write a ``tokenizer.json`` with the same merges, which gives the same ids."""
    keys = written(tmp_path, library)
    found = room.from_gguf(keys)
    assert found is not None
    assert found.add_bos
    (tmp_path / "back").mkdir()
    paths = room.write_hf(found, tmp_path / "back")
    assert [path.name for path in paths] == ["tokenizer.json", "tokenizer_config.json"]
    again = tokenizers.Tokenizer.from_file(str(paths[0]))
    for text in TEXTS.values():
        ids = library.encode(text, add_special_tokens=False).ids
        assert again.encode(text).ids == [SPECIAL.index("<bos>"), *ids]
    second = room.read(tmp_path / "back")
    assert second is not None
    assert differing(room.to_gguf(second, {}, second.size, "gemma4"), library) == set()


@pytest.mark.peers
def test_transformers_reads_the_folder(tmp_path: Path, library: tokenizers.Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    found = room.from_gguf(written(tmp_path, library))
    assert found is not None
    (tmp_path / "back").mkdir()
    room.write_hf(found, tmp_path / "back")
    before, after = (
        transformers.AutoTokenizer.from_pretrained(tmp_path / name) for name in ("hf", "back")
    )
    for text in TEXTS.values():
        ids = before.encode(text, add_special_tokens=False)
        assert after.encode(text, add_special_tokens=False) == ids


def test_a_model_without_listed_merges(tmp_path: Path) -> None:
    """Write every cut of a piece as a merge, which a ``tokenizer.model`` does not say."""
    model = samples.train_sentencepiece(add_dummy_prefix=False)
    ours = room.read(samples.sentencepiece_folder(tmp_path, model))
    assert ours is not None
    keys = room.to_gguf(ours, {}, ours.size, "gemma4")
    plain = tokenizers.Tokenizer.from_str(room.to_json(ours))
    assert differing(keys, plain) == set()


def test_merges_that_make_no_token(tmp_path: Path, library: tokenizers.Tokenizer) -> None:
    keys = written(tmp_path, library)
    with pytest.raises(MalformedFile, match="1 merges are not two tokens that make a third"):
        room.from_gguf({**keys, f"{ROOT}merges": ["a nothing"]})
