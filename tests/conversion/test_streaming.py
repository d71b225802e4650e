"""Tensors are read, converted and written a few rows at a time, to the same bytes."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.conversion import Request, convert, prepare, streaming
from maxtool.dtype import DType
from maxtool.errors import ModelMismatch
from maxtool.quantization.scheme import Scheme
from maxtool.recipe import OutputTensor, Plan, find_recipe, plan
from maxtool.recipe.gathered_rows import gathered
from maxtool.weights import open_checkpoint
from tests.effort import thinned

DATA = Path(__file__).resolve().parents[1] / "data"
EMBED = "model.embed_tokens.weight"
# What moves rows, stacks and splits them, and what turns them.
FAMILIES = ("tiny-llama", "tiny-mixtral", "tiny-phi3", "tiny-gpt2", "tiny-falcon", "tiny-gemma3")
MEGABYTE = 1 << 20


def made(source: Path, output: Path, **options: object) -> bytes:
    convert(prepare(Request(source, output, force=True, **options)))
    file = output if output.is_file() else output / "model.safetensors"
    return file.read_bytes()


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", [1, 1000])
def test_chunks_of_any_size_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, chunk: int
) -> None:
    """Convert to GGUF, packed, and back again."""

    def all_of(folder: Path) -> list[bytes]:
        folder.mkdir()
        first = folder / "a.gguf"
        return [
            made(DATA / family, first, quantize=Scheme.named("Q8_0")),
            made(DATA / family, first, dtype=DType.bfloat16),
            made(first, folder / "b", dtype=DType.float32),
        ]

    whole = all_of(tmp_path / "whole")
    monkeypatch.setattr(streaming, "CHUNK_BYTES", chunk)
    assert all_of(tmp_path / "parts") == whole


def test_rows_that_are_moved_are_not_held() -> None:
    """Hold nothing in a Llama; in GPT-2 all projections are transposed."""
    from maxtool.recipe import emissions

    for family, held in (("tiny-llama", False), ("tiny-gpt2", True)):
        checkpoint = open_checkpoint(DATA / family)
        planned = plan(find_recipe(checkpoint), checkpoint)
        shapes = {name: binding.shape for name, binding in planned.parameters.items()}
        result = emissions(planned.recipe, "gguf", planned.config, shapes)
        matrices = [one for one in result if len(one.shape) > 1]
        assert any(gathered(planned, matrix) is None for matrix in matrices) == held


def test_one_whole_tensor_is_held_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make a tensor that is turned once all before it has been written, however many jobs."""
    planned = prepare(Request(DATA / "tiny-gpt2", tmp_path / "a.gguf", jobs=8))
    written, seen, inner = 0, [], streaming.plain

    def advance(count: int) -> None:
        nonlocal written
        written += count

    def spy(plan: Plan, emission: OutputTensor) -> np.ndarray:
        seen.append((emission.name, written))
        return inner(plan, emission)

    monkeypatch.setattr(streaming, "CHUNK_BYTES", 1)
    monkeypatch.setattr(streaming, "plain", spy)
    convert(planned, advance)
    ends = np.cumsum([0, *(spec.nbytes for spec in planned.specs)]).tolist()
    before = dict(zip((spec.name for spec in planned.specs), ends, strict=False))
    assert len(seen) > 2
    assert seen == [(name, before[name]) for name, _ in seen]


@pytest.mark.parametrize("jobs", [1, 3])
def test_any_number_of_jobs_gives_the_same_bytes(tmp_path: Path, jobs: int) -> None:
    usual = made(DATA / "tiny-llama", tmp_path / "a.gguf", quantize=Scheme.named("Q4_0"))
    options = ["--quantize", "Q4_0", "--jobs", str(jobs), "--verify"]
    command = ["convert", str(DATA / "tiny-llama"), "-o", str(tmp_path / "b.gguf"), *options]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (tmp_path / "b.gguf").read_bytes() == usual


def test_no_jobs_are_refused(tmp_path: Path) -> None:
    command = ["convert", str(DATA / "tiny-llama"), "-o", str(tmp_path / "b"), "--jobs", "0"]
    assert CliRunner().invoke(app, command).exit_code == 2


def test_all_values_that_do_not_fit_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "CHUNK_BYTES", 1)
    shutil.copytree(DATA / "tiny-llama", tmp_path / "source")
    file = tmp_path / "source" / "model.safetensors"
    weights = load_file(file)
    weights[EMBED][[0, 5, -1], [0, 1, 2]] = 1e6
    save_file(weights, file)
    with pytest.raises(ModelMismatch, match=f"3 of {weights[EMBED].size} values do not fit"):
        made(tmp_path / "source", tmp_path / "out.gguf", dtype=DType.float16)


def peak(source: Path, output: Path, *options: str) -> int:
    """The most memory that a conversion held, in bytes."""
    measure = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=-3)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-m", "maxtool", "convert", str(source), "-o", str(output)]
    done = subprocess.run(
        [sys.executable, "-c", measure, *command, *options],
        capture_output=True,
        check=True,
        text=True,
    )
    unit = 1 if sys.platform == "darwin" else 1024
    return int(done.stdout) * unit


@pytest.mark.long
@pytest.mark.skipif(not hasattr(resource, "RUSAGE_CHILDREN"), reason="reads resource usage")
@pytest.mark.parametrize("dtype", thinned(["float32", "float16"], "float16"))
def test_a_large_tensor_takes_no_memory(tmp_path: Path, dtype: str) -> None:
    """Two tensors of 100 MB each: what two jobs hold of them is less than half of one."""
    shutil.copytree(DATA / "tiny-llama", tmp_path / "large")
    config = json.loads((tmp_path / "large" / "config.json").read_text())
    rows = 100 * MEGABYTE // (4 * config["hidden_size"])
    (tmp_path / "large" / "config.json").write_text(json.dumps(config | {"vocab_size": rows}))
    file = tmp_path / "large" / "model.safetensors"
    weights = load_file(file)
    for name in (EMBED, "lm_head.weight"):
        weights[name] = np.zeros((rows, config["hidden_size"]), np.float32)
    save_file(weights, file)
    options = ("--dtype", dtype, "--jobs", "2")
    small = peak(DATA / "tiny-llama", tmp_path / "small.safetensors", *options)
    large = peak(tmp_path / "large", tmp_path / "large.safetensors", *options)
    assert large - small < 50 * MEGABYTE
