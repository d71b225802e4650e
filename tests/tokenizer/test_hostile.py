"""Demands of a tokenizer.json on the library: each file in a process with little memory."""

from __future__ import annotations

import base64
import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool import tokenizer as room
from maxtool.errors import MalformedFile
from maxtool.runtime.loader import charsmap
from maxtool.tokenizer.hostile import MAX_GROWTH, find_problem

sys.path.insert(0, str(Path(__file__).parent))
import tokenizer_samples as samples

ROOT = Path(__file__).parents[2]
MEMORY = 2 << 30

BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}
CLAIMS = base64.b64encode(struct.pack("<I", 0xFFFFFFF0) + b"12345678").decode()
PRECOMPILED = {"type": "Precompiled", "precompiled_charsmap": CLAIMS}
REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
A = {"Sequence": {"id": "A", "type_id": 0}}


def sequence(key: str, *steps: object) -> dict[str, object]:
    return {"type": "Sequence", key: list(steps)}


def nested(depth: int) -> dict[str, object]:
    step: dict[str, object] = {"type": "NFC"}
    for _ in range(depth):
        step = sequence("normalizers", step)
    return step


def template(single: list[object], **tokens: object) -> dict[str, object]:
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [A, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": tokens,
    }


def split(regex: str) -> dict[str, object]:
    pattern = {"Regex": regex}
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


MANY = {"id": "q", "ids": [0] * 100_000, "tokens": ["q"] * 100_000}
# Those of them that end a process, or fill its memory, where nobody looks at them first.
HOSTILE: dict[str, dict[str, Any]] = {
    "map": {"normalizer": PRECOMPILED},
    "map in a sequence": {"normalizer": sequence("normalizers", PRECOMPILED)},
    "map far inside": {
        "normalizer": sequence("normalizers", sequence("normalizers", nested(3), PRECOMPILED))
    },
    "map that is empty": {"normalizer": {**PRECOMPILED, "precompiled_charsmap": ""}},
    "map that is not base64": {"normalizer": {**PRECOMPILED, "precompiled_charsmap": "?"}},
    "replaced nine times": {"normalizer": sequence("normalizers", *[REPLACE] * 9)},
    "replaced by much": {"normalizer": {**REPLACE, "content": "x" * 100_000}},
    "replaced in a decoder": {"decoder": sequence("decoders", *[REPLACE] * 9)},
    "bytes of bytes": {"pre_tokenizer": sequence("pretokenizers", *[{"type": "ByteLevel"}] * 60)},
    "prepended": {"normalizer": {"type": "Prepend", "prepend": "x" * 10_000_000}},
    "prepended often": {
        "normalizer": sequence("normalizers", *[{"type": "Prepend", "prepend": "x" * 1000}] * 200)
    },
    "the text again and again": {"post_processor": template([A] * 100_000)},
    "many tokens around": {"post_processor": template([A], q=MANY)},
    "nested": {"normalizer": nested(150)},
    "nested beyond reason": {"normalizer": nested(1)},
    "a regular expression nested": {"pre_tokenizer": split("(" * 100_000 + ")" * 100_000)},
    "scores of NaN": {"model": {**UNIGRAM, "vocab": [["<unk>", float("nan")]]}},
    "an unknown token beyond": {"model": {**UNIGRAM, "unk_id": 1 << 40}},
    "no tokens": {"model": {**UNIGRAM, "vocab": []}},
    "an id beyond 32 bits": {"model": {**BPE, "vocab": {"a": 0, "b": 1, "ab": 1 << 32}}},
    "an id that is large": {"model": {**BPE, "vocab": {"a": 0, "b": 1, "ab": (1 << 32) - 1}}},
    "a prefix longer than merges": {"model": {**BPE, "continuing_subword_prefix": "#" * 9}},
}


def text_of(**parts: Any) -> str:
    return json.dumps({"version": "1.0", "added_tokens": [], "model": BPE, **parts})


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each hostile file."""
    place = tmp_path_factory.mktemp("hostile")
    for name, parts in HOSTILE.items():
        (place / name).mkdir()
        text = text_of(**parts)
        if name == "nested beyond reason":
            text = text.replace('{"type": "NFC"}', "[" * 100_000 + "]" * 100_000)
        (place / name / "tokenizer.json").write_text(text)
    return place


READ = f"""
import resource, sys
from pathlib import Path
from maxtool import tokenizer
from maxtool.errors import InputError
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
for folder in sorted(Path(sys.argv[1]).iterdir()):
    print(folder.name, flush=True)
    try:
        tokenizer.read(folder)
    except InputError as error:
        print("  refused", error, flush=True)
"""


def test_all_end_in_an_error_of_ours(folders: Path) -> None:
    command = [sys.executable, "-c", READ, str(folders)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = ran.stdout.splitlines()
    names = [line for line in lines if not line.startswith("  ")]
    assert ran.returncode == 0, f"{names[-1]}: {ran.stderr[-500:]}"
    assert names == sorted(HOSTILE)
    assert sum(line.startswith("  refused") for line in lines) == len(HOSTILE), ran.stdout


def test_the_command_says_so(folders: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "tests" / "data" / "tiny-llama-tied", source)
    shutil.copyfile(folders / "map" / "tokenizer.json", source / "tokenizer.json")
    arguments = ["convert", str(source), "-o", str(tmp_path / "x.gguf")]
    ran = subprocess.run(
        [sys.executable, "-m", "maxtool", *arguments], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 3
    assert "precompiled_charsmap: a trie of 4294967280 bytes in a map of 12" in ran.stderr


# --- maps ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["nmt_nfkc", "nfkc_cf"])
def real(request: pytest.FixtureRequest) -> bytes:
    """A map that SentencePiece makes."""
    from sentencepiece import sentencepiece_model_pb2 as schema

    proto = schema.ModelProto()
    proto.ParseFromString(samples.train_sentencepiece(normalization_rule_name=request.param))
    return bytes(proto.normalizer_spec.precompiled_charsmap)


def test_real_maps_pass(real: bytes) -> None:
    assert charsmap.problem_of(real) is None
    encoded = base64.b64encode(real).decode()
    step = {"type": "Precompiled", "precompiled_charsmap": encoded}
    assert find_problem({"normalizer": step}) is None
    assert charsmap.find_problem(text_of(normalizer=step).encode()) is None


@settings(max_examples=60)
@given(data=st.data())
def test_a_map_that_passes_can_be_used(real: bytes, data: st.DataObject) -> None:
    """Damaged anywhere: either it is refused, or no text leads out of it."""
    import tokenizers

    at = data.draw(st.integers(0, len(real) - 1) | st.integers(0, 8))
    damaged = bytearray(real)
    damaged[at] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.just(len(real)) | st.integers(0, len(real)))]
    text = data.draw(st.text(max_size=30))
    if charsmap.problem_of(bytes(damaged)) is not None:
        return
    tokenizers.normalizers.Precompiled(bytes(damaged)).normalize_str(text)


@pytest.mark.parametrize(
    ("units", "texts", "problem"),
    [
        ([0] * 255, b"", "a trie of 1020 bytes"),
        ([], b"", "a trie of 0 bytes"),
        ([1 << 20, *[0] * 255], b"", "nodes are not all in it"),
        ([1 << 31 | 5, *[0] * 255], b"abc\0", "behind the texts"),
        ([0] * 256, b"abc", "without an end"),
        ([0] * 256, b"\xff\0", "not UTF-8"),
    ],
)
def test_maps_that_are_none(units: list[int], texts: bytes, problem: str) -> None:
    trie = np.array(units, "<u4").tobytes()
    result = charsmap.problem_of(struct.pack("<I", len(trie)) + trie + texts)
    assert result is not None
    assert problem in result


def test_maps_in_other_files(tmp_path: Path) -> None:
    from sentencepiece import sentencepiece_model_pb2 as schema

    proto = schema.ModelProto()
    proto.ParseFromString(samples.train_sentencepiece())
    proto.normalizer_spec.precompiled_charsmap = base64.b64decode(CLAIMS)
    folder = samples.sentencepiece_folder(tmp_path, proto.SerializeToString())
    with pytest.raises(MalformedFile, match="precompiled_charsmap"):
        room.read(folder)


# --- growth --------------------------------------------------------------------------------------


def test_known_tokenizers_pass() -> None:
    files = [*(ROOT / "tests" / "data").glob("*/tokenizer.json"), *ROOT.glob("samples/*/*.json")]
    result = [json.loads(file.read_text()) for file in files if file.name == "tokenizer.json"]
    assert len(result) > 3
    assert [find_problem(root) for root in result] == [None] * len(result)


def test_growth_is_that_of_all_steps() -> None:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 256}
    assert MAX_GROWTH == 256 * 256
    assert find_problem({"normalizer": sequence("normalizers", step, step)}) is None
    once_more = sequence("normalizers", step, step, {"type": "NFC"})
    assert "characters of one" in str(find_problem({"normalizer": once_more}))
