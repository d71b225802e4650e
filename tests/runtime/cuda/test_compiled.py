"""Models as ``maxtool compile`` makes them for GPUs, beside their references, without a GPU.

What is run is the CUDA source that nvrtc would be given, compiled for the host, launched by TVM's
own virtual machine and our loader over the stub of a GPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import stub_gpu
import tiny_artifact

from maxtool import artifact
from maxtool.artifact import machine_code
from maxtool.compiler.cuda.binaries import GeneratedModule, device_source
from maxtool.compiler.cuda.device_code import DeviceCode
from maxtool.dtype import DType

pytestmark = pytest.mark.slow
DATA = Path(__file__).parents[2] / "data"
# Every kind of product and of attention, and tensor cores, which take 16 bits; the interpreter of
# tests/simt runs all recipes in all types.
CASES = [
    ("tiny-llama", "float32"),
    ("tiny-llama", "float16"),
    ("tiny-llama", "bfloat16"),
    ("tiny-gemma2", "float16"),
    ("tiny-qwen3-moe", "bfloat16"),
    ("tiny-phi3-longrope", "float32"),
    ("tiny-gpt2", "bfloat16"),
    ("tiny-bert", "float16"),
]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stubs: Path) -> Any:
    """Compiles a model for GPUs; the artifact, and the environment that runs it."""
    monkeypatch.setattr(machine_code, "compilers", lambda: None)
    library = tmp_path / "code" / "kernels.so"

    def make(source: Path, **options: Any) -> tuple[Path, dict[str, str]]:
        monkeypatch.setattr(machine_code, "device_code", stand_in(library))
        folder = tmp_path / "model"
        asked = artifact.Request(source, folder, target="cuda:sm_90", **options)
        artifact.make(artifact.prepare(asked))
        return folder, stub_gpu.environment(stubs, library)

    return make


def stand_in(library: Path) -> Any:
    """Replace machine code by a library for the host, and a file that is chosen."""

    def device_code(compiled: GeneratedModule, _target: object) -> list[DeviceCode]:
        library.parent.mkdir()
        stub_gpu.build_kernels(device_source(compiled), library)
        return [DeviceCode("sm_90", b"sm_90.cubin\n", "")]

    return device_code


@pytest.mark.parametrize(("model", "dtype"), CASES)
def test_a_model_computes_what_its_reference_does(model: str, dtype: str, compiled: Any) -> None:
    folder, environment = compiled(DATA / model, dtype=DType(dtype), check=True)
    done = tiny_artifact.run(folder, "--check", "--json", env=environment)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["passed"]
    assert result["relative_error"] > 0


def test_tokens_are_those_of_the_cpu(compiled: Any, tmp_path: Path) -> None:
    """Draw by the model's own kernels, in recorded steps; the CPU picks them from logits."""
    source = DATA / "tiny-llama"
    folder, environment = compiled(source, dtype=DType.float32)
    host = artifact.Request(source, tmp_path / "host", dtype=DType.float32)
    artifact.make(artifact.prepare(host))
    arguments = [folder, json.dumps(SAMPLINGS)]
    drawn, lines = stub_gpu.run(GENERATE, environment, *arguments)
    picked, _ = stub_gpu.run(GENERATE, environment, tmp_path / "host", json.dumps(SAMPLINGS))
    assert drawn == picked
    assert len({tuple(tokens) for tokens in drawn}) > 3
    assert "replay" in lines
    assert not any(line.startswith(("in capture", "bad")) for line in lines)


SAMPLINGS: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.5},
    {"temperature": 1.0, "seed": 1},
    {"temperature": 1.5, "seed": 2, "top_k": 7},
    {"temperature": 1.5, "seed": 3, "top_p": 0.8, "min_p": 0.01, "repetition_penalty": 1.2},
]
GENERATE = """
model = loader.load(sys.argv[1])
texts = [list(model.generate([1, 5, 9], 12, **options)) for options in json.loads(sys.argv[2])]
answer([texts, log()])
"""
