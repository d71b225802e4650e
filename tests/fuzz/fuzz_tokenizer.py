"""Tokenizers: the files of a folder, or the keys of a GGUF file; each written as JSON again."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
from fuzz_gguf import file_of
from harness import NEXT, ROOT, Target, put, run
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from maxtool.tokenizer import from_gguf, to_json
from maxtool.tokenizer import read as read_folder
from maxtool.weights import open_checkpoint

FILES = (
    "tokenizer_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "config.json",
    "generation_config.json",
)
CONFIG = {
    "add_bos_token": True,
    "bos_token": "<s>",
    "eos_token": {"content": "</s>", "lstrip": False},
    "chat_template": "{{ messages }}",
    "added_tokens_decoder": {"1": {"content": "<s>", "special": True}},
}
KEYS: dict[str, Any] = {
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a", "b", "ab"],
    "tokenizer.ggml.scores": np.array([0, 0, 0, -1, -2, -3], np.float32),
    "tokenizer.ggml.token_type": np.array([2, 3, 3, 1, 1, 1], np.int32),
    "tokenizer.ggml.bos_token_id": np.uint32(1),
    "tokenizer.ggml.add_bos_token": True,
}


def byte_level() -> bytes:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*letters, "ab", "<s>", "</s>"])}
    result = Tokenizer(models.BPE(vocabulary, [("a", "b")]))
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = decoders.ByteLevel()
    result.add_special_tokens(["<s>", "</s>"])
    return result.to_str().encode()


@cache
def seeds() -> list[bytes]:
    config = json.dumps(CONFIG).encode()
    sentencepiece = (ROOT / "tests" / "data" / "tiny-llama" / "tokenizer.model").read_bytes()
    ids = json.dumps({"eos_token_id": [1, 2], "bos_token_id": 1}).encode()
    bpe = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["a b"]}
    return [
        NEXT.join([config, byte_level()]),
        NEXT.join([b"{}", b"", sentencepiece, ids, ids]),
        file_of({"tokenizer.ggml.model": "llama"} | KEYS),
        file_of(bpe | {"tokenizer.ggml.pre": "llama-bpe"} | KEYS),
    ]


def read(data: bytes) -> None:
    if data[:4] == b"GGUF":
        tokenizer = from_gguf(open_checkpoint(put(("x.gguf",), data)).metadata)
    else:
        path = put(FILES, data)
        for name in FILES:  # an empty part is not a file
            if (path.parent / name).exists() and not (path.parent / name).stat().st_size:
                (path.parent / name).unlink()
        tokenizer = read_folder(path.parent)
    if tokenizer is not None:
        to_json(tokenizer)


TARGET = Target(seeds, read, [b'"vocab":{', b'"merges":[', b'"added_tokens":[', b'"\\ud800"'])

if __name__ == "__main__":
    run(TARGET)
