"""Two texts become the same tokens by a tokenizer.json and by the GGUF keys made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import pre_tokenizers, processors

from maxtool import tokenizer as room
from tests.tokenizer import tokenizer_samples as samples

TEXTS = ("What is soup?", "It is eaten, hot.")
SPECIAL = ["<s>", "</s>", "[CLS]", "[SEP]"]
ORIGINAL = samples.train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
ORIGINAL.add_special_tokens(SPECIAL)
IDS = {token: ORIGINAL.token_to_id(token) for token in SPECIAL}


def template(single: str, pair: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(single, pair, [*IDS.items()])


# By what ends texts: the processor, the names in tokenizer_config.json, what GGUF says is added.
FORMS: dict[str, tuple[Any, dict[str, str], dict[str, bool]]] = {
    "roberta": (
        processors.RobertaProcessing(
            ("</s>", IDS["</s>"]), ("<s>", IDS["<s>"]), add_prefix_space=False
        ),
        {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>"},
        {"bos": True, "eos": True, "sep": True},
    ),
    "xlm-roberta": (
        template("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
        {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>"},
        {"bos": True, "eos": True, "sep": True},
    ),
    "modernbert": (
        template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]"),
        {"cls": "[CLS]", "sep": "[SEP]"},
        {"bos": True, "eos": True, "sep": False},
    ),
    "unnamed": (
        template("<s> $A </s>", "<s> $A </s> $B </s>"),
        {"bos": "<s>", "eos": "</s>"},
        {"bos": True, "eos": True, "sep": False},
    ),
    "an end of turns by name": (
        template("$A [SEP]", "$A [SEP] $B [SEP]"),
        {"eos": "</s>", "pad": "[SEP]"},
        {"eos": True, "sep": False},
    ),
    "two separators, no end": (
        template("<s> $A", "<s> $A </s> $B"),
        {"bos": "<s>", "eos": "</s>"},
        {"bos": True, "sep": True},
    ),
    "the beginning again": (
        template("<s> $A", "<s> $A <s> $B"),
        {"bos": "<s>", "eos": "</s>"},
        {"bos": True, "sep": False},
    ),
    "nothing between": (
        template("<s> $A", "<s> $A $B"),
        {"bos": "<s>", "eos": "</s>"},
        {"bos": True},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_pairs_through_gguf(tmp_path: Path, name: str) -> None:
    processor, named, added = FORMS[name]
    original = tokenizers.Tokenizer.from_str(ORIGINAL.to_str())
    original.post_processor = processor
    original.save(str(tmp_path / "tokenizer.json"))
    config = {f"{name}_token": token for name, token in named.items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = room.read(tmp_path)
    assert ours is not None
    keys = room.to_gguf(ours, {}, original.get_vocab_size())
    for end in ("bos", "eos", "sep"):
        assert keys.get(f"tokenizer.ggml.add_{end}_token") == added.get(end)
    back = room.from_gguf(keys)
    assert back is not None
    library = tokenizers.Tokenizer.from_str(room.to_json(back))
    # GGUF has no word for what begins a text when it stands between two.
    pairs = () if name == "the beginning again" else (TEXTS,)
    for texts in (*pairs, TEXTS[:1]):
        assert library.encode(*texts).ids == original.encode(*texts).ids
