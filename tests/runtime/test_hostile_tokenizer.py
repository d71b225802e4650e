"""Tokenizers of artifacts that the package would end the process for, or give up on."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maxtool.runtime.loader.errors import BadInput
from maxtool.runtime.loader.tokens import open_tokenizer, telling_failures

MODEL = {"type": "BPE", "vocab": {"a": 0}, "merges": []}


def manifest(folder: Path, **parts: object) -> Any:
    file = folder / "tokenizer.json"
    file.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": MODEL, **parts}))
    return SimpleNamespace(
        task="generate", tokenizer_file=file, require_unchanged=lambda _path: None
    )


def test_a_map_is_checked_before_the_package_reads_it(tmp_path: Path) -> None:
    claims = base64.b64encode(struct.pack("<I", 0xFFFFFFF0) + b"12345678").decode()
    result = manifest(tmp_path, normalizer={"type": "Precompiled", "precompiled_charsmap": claims})
    with pytest.raises(BadInput, match="precompiled_charsmap: a trie of 4294967"):
        open_tokenizer(result)


def test_what_fails_with_a_text_is_told() -> None:
    import tokenizers

    unknown = "[no]"
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece({"a": 0}, unk_token=unknown))
    with pytest.raises(BadInput, match=r"the tokenizer failed: .*Missing"), telling_failures():
        tokenizer.encode("b")


def test_panics_are_told_and_interrupts_go_on(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(
        manifest(tmp_path, pre_tokenizer={"type": "FixedLength", "length": 0})
    )
    with pytest.raises(BadInput, match="the tokenizer failed: chunk size"), telling_failures():
        tokenizer.encode("a")
    with pytest.raises(KeyboardInterrupt), telling_failures():
        raise KeyboardInterrupt
