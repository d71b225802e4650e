"""Compiled models compute what transformers computed from the same checkpoint."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.dtype import DType
from maxtool.runtime import loader
from tests.artifact.measure import Compile, bound, error, greedy, logits, recorded
from tests.effort import thinned

TINY = ("tiny-llama", "tiny-llama-tied", "tiny-mistral")
LEGACY = ("f16", "bf16", "outtype-q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
QUANTIZED = (*LEGACY, "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K")


@pytest.mark.parametrize("name", TINY)
def test_logits_and_greedy_tokens(compiled: Compile, data: Path, name: str) -> None:
    expected = recorded(data / name)
    artifact = compiled(data / name, kv_dtype=DType.float32)
    assert error(logits(artifact, expected["input_ids"]), expected["logits"]) <= bound(data / name)
    count = expected["greedy_tokens"].shape[1]
    assert greedy(artifact, expected["greedy_prompt"], count) == list(expected["greedy_tokens"][0])


def test_rows_of_a_batch_do_not_touch(compiled: Compile, data: Path) -> None:
    model = loader.load(compiled(data / "tiny-mistral"))
    ids = np.random.default_rng(1).integers(0, 90, (3, 11))
    alone = [model(input_ids=row[None])["logits"][0] for row in ids]
    assert error(model(input_ids=ids)["logits"], np.stack(alone)) < 1e-6
    state = model.new_state(batch=3)
    start = {"input_ids": ids[:, :10], "position": np.array([0], np.int32)}
    model.run("prefill", start, state)
    last = {"input_ids": ids[:, 10:], "position": np.array([10], np.int32)}
    step = model.run("decode", last, state)["logits"]
    assert error(step, np.stack(alone)[:, -1]) < 1e-6


def test_a_prompt_may_come_in_pieces(compiled: Compile, data: Path) -> None:
    model = loader.load(compiled(data / "tiny-llama"))
    ids = recorded(data / "tiny-llama")["input_ids"]
    state = model.new_state(batch=1)
    for start, stop in ((0, 5), (5, 6), (6, 19), (19, 24)):
        arrays = {"input_ids": ids[:, start:stop], "position": np.array([start], np.int32)}
        result = model.run("prefill", arrays, state)["logits"]
        assert error(result, model(input_ids=ids)["logits"][:, stop - 1]) < 1e-6


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "bound"),
    thinned([(DType.bfloat16, 2e-2), (DType.float16, 2e-3)], (DType.float16, 2e-3)),
)
def test_narrow_weights(compiled: Compile, data: Path, dtype: DType, bound: float) -> None:
    expected = recorded(data / "tiny-llama")
    artifact = compiled(data / "tiny-llama", dtype=dtype)
    actual = error(logits(artifact, expected["input_ids"]), expected["logits"])
    assert 1e-6 < actual < bound
    full = compiled(data / "tiny-llama") / "weights.bin"
    assert (artifact / "weights.bin").stat().st_size < 0.6 * full.stat().st_size


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(TINY, "tiny-llama-tied"))
def test_gguf_source(compiled: Compile, data: Path, tmp_path: Path, name: str) -> None:
    expected = recorded(data / name)
    source = tmp_path / "model.gguf"
    result = CliRunner().invoke(app, ["convert", str(data / name), "-o", str(source)])
    assert result.exit_code == 0, result.stderr
    artifact = compiled(source, kv_dtype=DType.float32)
    assert error(logits(artifact, expected["input_ids"]), expected["logits"]) <= bound(data / name)


@pytest.mark.long
def test_quantized_gguf_source(data: Path, tmp_path: Path) -> None:
    source = tmp_path / "model.gguf"
    run = CliRunner().invoke
    built = run(
        app, ["convert", str(data / "tiny-mistral"), "-o", str(source), "--quantize", "Q8_0"]
    )
    assert built.exit_code == 0, built.stderr
    result = run(app, ["compile", str(source), "-o", str(tmp_path / "out"), "--check"])
    assert result.exit_code == 0, result.stderr
    expected = recorded(data / "tiny-mistral")
    # What 8 bits lose in a model this narrow; --check above compared with the decoded weights.
    assert error(logits(tmp_path / "out", expected["input_ids"]), expected["logits"]) < 5e-2


def test_sample_tells_its_story(compiled: Compile, sample: Path) -> None:
    script = compiled(sample) / "run.py"
    command = [sys.executable, str(script), "--prompt", "Once upon a time", "--max-tokens", "300"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == (sample / "greedy.txt").read_text().strip()


@pytest.mark.reference
@pytest.mark.parametrize("source", [".", "stories260K-f32.gguf"])
def test_published_text(compiled: Compile, reference: Path, source: str) -> None:
    folder = reference / "stories260K"
    artifact = compiled((folder / source).resolve())
    command = [sys.executable, str(artifact / "run.py"), "--prompt", "Once upon a time"]
    shown = subprocess.run([*command, "--max-tokens", "200"], capture_output=True, check=True)
    assert shown.stdout.decode().strip() == (folder / "greedy.txt").read_text().strip()
    expected = recorded(folder)
    assert error(logits(artifact, expected["input_ids"]), expected["logits"]) <= bound(folder)


@pytest.mark.sampled
@pytest.mark.reference
@pytest.mark.parametrize("config", ["config.json", "config.older.json"])
@pytest.mark.parametrize("name", ["stories260K", "llama", "mistral"])
def test_reference_logits(
    compiled: Compile, reference: Path, tmp_path: Path, name: str, config: str
) -> None:
    folder = tmp_path / name
    shutil.copytree(reference / name, folder, ignore=shutil.ignore_patterns("*.gguf"))
    folder.chmod(0o755)
    (folder / "config.json").unlink()
    shutil.copyfile(reference / name / config, folder / "config.json")
    expected = recorded(folder)
    artifact = compiled(folder)
    assert error(logits(artifact, expected["input_ids"]), expected["logits"]) <= bound(folder)
    count = expected["greedy_tokens"].shape[1]
    assert greedy(artifact, expected["greedy_prompt"], count) == list(expected["greedy_tokens"][0])


@pytest.mark.sampled
@pytest.mark.reference
@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "f16",
        "bf16",
        "outtype-q8_0",
        "Q2_K",
        "Q3_K_M",
        "Q4_0",
        "Q4_1",
        "Q4_K_M",
        "Q5_0",
        "Q5_1",
        "Q5_K_M",
        "Q6_K",
        "Q8_0",
    ],
)
def test_quantized_reference(reference: Path, tmp_path: Path, kind: str) -> None:
    source = reference / "llama" / f"llama-{kind}.gguf"
    output = tmp_path / "out"
    result = CliRunner().invoke(app, ["compile", str(source), "-o", str(output), "--check"])
    assert result.exit_code == 0, result.stderr
    assert "relative error" in result.stdout
