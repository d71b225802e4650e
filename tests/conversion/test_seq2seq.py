"""Models of two texts as Hugging Face folders and, of T5, as GGUF files, written and read back."""

from __future__ import annotations

import zlib
from pathlib import Path

import gguf
import numpy as np
import pytest

from maxtool.weights import open_checkpoint
from tests.artifact.measure import error
from tests.conversion.asked import run
from tests.effort import sampled
from tests.parity.seq2seq import Seq2SeqModel
from tests.parity.test_seq2seq import BOUND, CASES, RECORDED, written

# What the source of a recording has, and what a name makes of it.
NAMED = {"general.name", "general.size_label", "general.basename", "general.finetune"}
WITH_GGUF = [case for case, known in CASES.items() if "gguf" in known]


def check(case: str, source: Path, part: str = "") -> None:
    """Check that a checkpoint computes what was recorded, or a part of it."""
    found = Seq2SeqModel(open_checkpoint(source)).outputs(CASES[case]["config"])
    for name, array in found.items():
        assert not name.startswith(part) or error(array, RECORDED[f"{case}/{name}"]) < BOUND


@pytest.mark.parametrize("case", ["bart-bare", "bart-0", "mbart-0", "t5-0", "mt5-0", "umt5-0"])
def test_a_folder_computes_the_same(case: str, tmp_path: Path) -> None:
    run("convert", written(case, tmp_path / "model"), "-o", tmp_path / "out")
    check(case, tmp_path / "out")


@pytest.mark.sampled
@pytest.mark.parametrize("case", sampled(WITH_GGUF, "t5-0", "umt5-0", share=5))
def test_files_are_llama_cpp_s(case: str, tmp_path: Path) -> None:
    target, known = tmp_path / "x.gguf", CASES[case]["gguf"]
    told = run("convert", written(case, tmp_path / "model"), "-o", target)
    # A file does not say that no head is scaled, as those of T5 are that are tied.
    is_other = case.startswith("mt5") and "lm_head.weight" not in CASES[case]["shapes"]
    assert ("a T5 with such a head scales what it reads" in told) == is_other
    part = "encoded" if is_other else ""
    reader = gguf.GGUFReader(target)
    keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    expected = {key: value for key, value in known["keys"].items() if key not in NAMED}
    assert [*(key for key in keys if key not in NAMED)] == [*expected]
    assert {key: keys[key] for key in expected} == expected
    held = {each.name: each for each in reader.tensors}
    assert [*held] == [*known["tensors"]]
    for name, (shape, checksum) in known["tensors"].items():
        assert held[name].shape.tolist()[::-1] == shape
        assert zlib.crc32(np.ascontiguousarray(held[name].data).tobytes()) == checksum
    check(case, target, part)
    run("convert", target, "-o", tmp_path / "back")
    check(case, tmp_path / "back", part)


def test_gguf_has_no_form_of_bart(tmp_path: Path) -> None:
    source = written("bart-0", tmp_path / "model")
    told = run("convert", source, "-o", tmp_path / "x.gguf", code=4)
    assert "GGUF has no form of bart models" in told
    assert not (tmp_path / "x.gguf").exists()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"relative_attention_max_distance": 64}, "relative_distance = 64 has no spelling"),
        ({"feed_forward_proj": "silu", "dense_act_fn": "silu"}, "hidden_act = 'silu' has no"),
    ],
)
def test_what_gguf_cannot_say(changes: dict[str, object], problem: str, tmp_path: Path) -> None:
    source = written("t5-0", tmp_path / "model", **changes)
    assert problem in run("convert", source, "-o", tmp_path / "x.gguf", code=4)
