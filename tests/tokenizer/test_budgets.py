"""Cost of reading a tokenizer's files: a few bytes must not become gigabytes or minutes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from maxtool import tokenizer as room
from maxtool.errors import MalformedFile
from tests.machine import Stopwatch

sys.path.insert(0, str(Path(__file__).parent))
import tokenizer_samples as samples

SECONDS = 2
WIDE = "\U0001f600"


def repeated(body: bytes, size: int) -> bytes:
    return b'{"a":[' + body * (size // len(body)) + b"0]}"


def template(text: str) -> bytes:
    return json.dumps({"chat_template": text}).encode()


REFUSED: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "empty objects": ("tokenizer.json", lambda: repeated(b"{},", 20_000_000), "bytes of memory"),
    "empty lists": ("tokenizer.json", lambda: repeated(b"[],", 20_000_000), "bytes of memory"),
    "numbers": ("tokenizer.json", lambda: repeated(b"0,", 20_000_000), "bytes of memory"),
    "depth": ("tokenizer.json", lambda: b'{"a":' * 100_000, "JSON"),
    "a configuration": ("tokenizer_config.json", lambda: repeated(b"[],", 5_000_000), "memory"),
    "a model of nothing": ("tokenizer.model", lambda: b"\n\0" * (1 << 22), "pieces"),
    "a template": ("tokenizer_config.json", lambda: template("x" * ((1 << 20) + 1)), "1048576"),
    "a wide template": ("chat_template.jinja", lambda: (WIDE * 300_000).encode(), "1048576"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_costs_too_much_is_refused(tmp_path: Path, case: str) -> None:
    name, result, says = REFUSED[case]
    samples.sentencepiece_folder(tmp_path, samples.train_sentencepiece())
    (tmp_path / name).write_bytes(result())
    with Stopwatch() as watch, pytest.raises(MalformedFile, match=says):
        room.read(tmp_path)
    assert watch.seconds < SECONDS


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model", "merges.txt"])
def test_a_file_of_gigabytes_is_not_read(tmp_path: Path, name: str) -> None:
    samples.sentencepiece_folder(tmp_path, samples.train_sentencepiece())
    with (tmp_path / name).open("wb") as stream:
        stream.truncate(1 << 31)
    with Stopwatch() as watch, pytest.raises(MalformedFile, match="more than 100000000 bytes"):
        room.read(tmp_path)
    assert watch.seconds < SECONDS


def test_a_template_of_a_gguf_file() -> None:
    keys = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["a"],
        "tokenizer.ggml.merges": [],
        "tokenizer.chat_template": "x" * ((1 << 20) + 1),
    }
    with pytest.raises(MalformedFile, match="1048576"):
        room.from_gguf(keys)
