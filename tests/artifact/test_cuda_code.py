"""The code of an artifact for GPUs, and what is refused before any is made."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.artifact import machine_code
from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.artifact.progress import SilentProgress, StageClock
from maxtool.cli.app import app
from maxtool.compiler.targets import parse_target
from maxtool.dtype import DType
from maxtool.errors import MachineLacks, MissingDevice, UsageError
from maxtool.graph import Graph, TensorType, ops
from maxtool.quantization import QuantizationEncoding
from maxtool.weights import WeightData


class Stages(SilentProgress):
    def __init__(self) -> None:
        self.names: list[str] = []

    def stage(self, name: str, nbytes: int = 0) -> None:
        self.names.append(name)
        assert not nbytes


def graph() -> Graph:
    kind = TensorType(DType.float32, ["rows", 4])
    with Graph("joined", input_types=[kind, kind]) as result:
        first, second = result.inputs
        result.output(ops.concat([ops.cast(first, DType.float64), ops.cast(second, DType.float64)]))
    return result


def test_files_beside_the_library(tmp_path: Path) -> None:
    target = parse_target("cuda:sm_80,sm_90", ptx=True)
    functions = (NamedGraph("joined", "joined", graph(), ("x", "y"), ("z",)),)
    contents = Contents(
        functions, target, dict[str, WeightData]().__getitem__, identity={}, dtype=None
    )
    stages, clock = Stages(), StageClock()
    kernels = machine_code.write(contents, tmp_path, clock, stages)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["compute_80.ptx", "model.so", "sm_80.cubin", "sm_90.cubin"]
    for arch in (80, 90):
        elf = (tmp_path / f"sm_{arch}.cubin").read_bytes()
        machine, flags = struct.unpack_from("<H", elf, 18)[0], struct.unpack_from("<I", elf, 48)[0]
        assert (elf[:4], machine, flags >> 8 & 0xFF) == (b"\x7fELF", 190, arch)
    assert (tmp_path / "compute_80.ptx").read_text().rstrip().endswith("}")
    assert b"__global__" not in (tmp_path / "model.so").read_bytes()
    assert kernels.keys() == {"sm_80", "sm_90"}
    assert kernels["sm_80"].keys() == kernels["sm_90"].keys() != set()
    assert stages.names == [
        "lowering joined",
        "compiling joined",
        "generating machine code",
        "compiling for sm_80, sm_90",
    ]
    assert machine_code.stages(target) == len(stages.names)
    assert list(clock.seconds) == ["lower", "compile", "link", "device code"]


def request(source: Path, output: Path, **options: object) -> artifact.Request:
    return artifact.Request(source, output, **options)  # type: ignore[arg-type]


def test_a_plan_needs_no_gpu(data: Path, tmp_path: Path) -> None:
    result = artifact.prepare(request(data / "tiny-llama", tmp_path / "a", target="cuda:sm_90"))
    assert result.target.manifest["archs"] == ["sm_90"]
    assert all(place.block is None for place in result.contents.storage.values())
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"target": "cuda:sm_75"}, UsageError, "no CUDA architecture 'sm_75'"),
        ({"target": "cuda:"}, UsageError, "no target 'cuda:'"),
        ({"ptx": True}, UsageError, "--ptx is for GPUs"),
        (
            {"target": "cuda:sm_90,cpu:s390x-linux-gnu", "standalone": True},
            UsageError,
            "no CPU",
        ),
        (
            {"target": "cpu:aarch64-linux-gnu", "standalone": True},
            UsageError,
            "copies this machine's libraries",
        ),
    ],
)
def test_refused_before_anything_is_compiled(
    data: Path,
    tmp_path: Path,
    options: dict[str, object],
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=said):
        artifact.prepare(request(data / "tiny-llama", tmp_path / "a", **options))


def test_without_the_extra_nothing_is_compiled(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise MachineLacks("nvrtc is not here")

    monkeypatch.setattr(machine_code, "compilers", absent)
    with pytest.raises(MachineLacks, match="nvrtc"):
        artifact.prepare(request(data / "tiny-llama", tmp_path / "a", target="cuda:sm_90"))
    artifact.prepare(request(data / "tiny-llama", tmp_path / "a"))


def test_the_gpu_here_where_there_is_none(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxtool.graph.gpus.has_driver", lambda: False)
    with pytest.raises(MissingDevice, match="cuda:sm_90"):
        artifact.prepare(request(data / "tiny-llama", tmp_path / "a", target="cuda"))


def test_the_command_says_what_it_would_do(data: Path, tmp_path: Path) -> None:
    arguments = ["--target", "cuda:sm_90,sm_80", "--ptx", "--dry-run", "--json"]
    source, output = str(data / "tiny-llama"), str(tmp_path / "a")
    result = CliRunner().invoke(app, ["compile", source, "-o", output, *arguments])
    assert result.exit_code == 0, result.stderr
    target = json.loads(result.stdout)["target"]
    assert (target["kind"], target["archs"], target["ptx"]) == ("cuda", ["sm_80", "sm_90"], True)
    assert target["host"]["kind"] == "cpu"


def test_quantized_matrices_become_float16(sample: Path, tmp_path: Path) -> None:
    file = tmp_path / "quantized.gguf"
    result = CliRunner().invoke(
        app, ["convert", str(sample), "-o", str(file), "--quantize", "Q8_0"]
    )
    assert result.exit_code == 0, result.stderr
    on_gpu = artifact.prepare(request(file, tmp_path / "a", target="cuda:sm_90"))
    assert on_gpu.contents.dtype is DType.float16
    assert on_gpu.contents.storage["layers.0.attn.q.weight"].dtype is DType.float16
    on_cpu = artifact.prepare(request(file, tmp_path / "a")).contents
    assert on_cpu.storage["layers.0.attn.q.weight"].encoding is QuantizationEncoding.Q8_0
    asked = request(file, tmp_path / "a", target="cuda:sm_90", dtype=DType.bfloat16)
    assert artifact.prepare(asked).contents.dtype is DType.bfloat16
