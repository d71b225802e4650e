"""Models of speech as Hugging Face folders, written and read back; GGUF has no form of them."""

from __future__ import annotations

import json
from pathlib import Path

from maxtool.weights import open_checkpoint
from tests.artifact.measure import error
from tests.conversion.asked import run
from tests.parity.speech import SpeechModel
from tests.parity.test_speech import CASES, RECORDED, written

BESIDE = {"preprocessor_config.json": {"feature_size": 6}, "generation_config.json": {"a": 1}}


def test_a_folder_computes_the_same(tmp_path: Path) -> None:
    source, output = written("whisper-bare", tmp_path / "model"), tmp_path / "out"
    for name, content in BESIDE.items():
        (source / name).write_text(json.dumps(content))
    run("convert", source, "-o", output)
    for name, content in BESIDE.items():
        assert json.loads((output / name).read_text()) == content
    found = SpeechModel(open_checkpoint(output)).outputs(CASES["whisper-bare"]["config"])
    for name, array in found.items():
        assert error(array, RECORDED[f"whisper-bare/{name}"]) < 2e-6


def test_gguf_has_no_form_of_them(tmp_path: Path) -> None:
    source = written("whisper-0", tmp_path / "model")
    told = run("convert", source, "-o", tmp_path / "x.gguf", code=4)
    assert "GGUF has no form of whisper models" in told
    assert not (tmp_path / "x.gguf").exists()
