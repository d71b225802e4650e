"""Models on a GPU, which is a stub: what is missing, what is chosen, calls, memory."""

from __future__ import annotations

import json
import sys
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pytest
import stub_gpu

from maxtool.runtime import loader
from maxtool.runtime.loader import cuda_code, cuda_driver, cuda_gpu, cuda_runtime

TRY = """
import os
answers = []
for folder, device, gpu in json.loads(sys.argv[1]):
    clear = [name for name in os.environ if name.startswith("STUB_") and name != "STUB_KERNELS"]
    for name in clear:
        del os.environ[name]
    os.environ.update({f"STUB_{name.upper()}": str(value) for name, value in gpu.items()})
    try:
        model = loader.load(folder, device=device)
        answers.append(["loaded", str(getattr(model.processor, "gpu", "cpu"))])
    except loader.RunError as error:
        answers.append([type(error).__name__, str(error)])
answer(answers)
"""
Case = tuple[Path, str | None, dict[str, Any]]


def load(environment: dict[str, str], *cases: Case, before: str = "") -> list[list[str]]:
    """Return messages of loading, in one process, on one stub of a GPU after the other."""
    asked = json.dumps([[str(folder), device, gpu] for folder, device, gpu in cases])
    return list(stub_gpu.run(before + TRY, environment, asked))


MISSING: list[tuple[dict[str, Any], str | None, str, str]] = [
    ({"driver": 12040}, None, "MachineLacks", "is for CUDA 12.4, and models need CUDA 13. install"),
    ({"init": 100}, None, "MachineLacks", "finds no GPU"),
    ({"gpus": "none"}, None, "MachineLacks", "finds no GPU"),
    ({"init": 803}, None, "MachineLacks", "error 803, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    (
        {"gpus": "9.0 8.0"},
        "cuda:2",
        "BadUsage",
        "this machine has GPU 0 (Stub 0, compute capability 9.0); GPU 1",
    ),
    ({}, "cuda:-1", "BadUsage", "takes cpu, cuda or cuda:1"),
    ({}, "tpu", "BadUsage", "takes cpu, cuda or cuda:1"),
    ({}, "", "BadUsage", "takes cpu, cuda or cuda:1"),
    ({}, "cpu", "DoesNotFit", "compile it with --target cpu"),
    (
        {"gpus": "7.5"},
        None,
        "MachineLacks",
        "code for sm_80, sm_90; GPU 0 (Stub 0, compute capabil",
    ),
    ({"gpus": "7.5"}, None, "MachineLacks", "the GPU is older than all of them"),
    ({"gpus": "12.0"}, None, "MachineLacks", "with --target cuda:sm_120, or with --ptx"),
    ({"memory": 1000}, None, "MachineLacks", "free memory; the weights of the model are"),
    ({"gpus": "8.0 9.0"}, "cuda:1", "loaded", "GPU 1 (Stub 1, compute capability 9.0)"),
]


def test_what_is_missing(stubs: Path, cuda_module: Path, cuda_artifact: Path) -> None:
    environment = stub_gpu.environment(stubs, cuda_module)
    cases: list[Case] = [(cuda_artifact, device, gpu) for gpu, device, _, _ in MISSING]
    for (_, _, kind, says), (result, said) in zip(MISSING, load(environment, *cases), strict=True):
        assert (result, says in said, "\n" in said) == (kind, True, False), said


def test_no_driver(cuda_artifact: Path) -> None:
    """Ignore the driver of the machine that the tests run on."""
    before = "from maxtool.runtime.loader import cuda_driver\ncuda_driver.LIBRARY = 'libno.so.1'\n"
    ((kind, said),) = load(stub_gpu.environment(None), (cuda_artifact, None, {}), before=before)
    assert kind == "MachineLacks"
    assert "no NVIDIA driver here (libno.so.1 cannot be loaded)" in said
    assert "--target cpu" in said


def test_no_runtime_library(stubs: Path, cuda_artifact: Path) -> None:
    before = (
        "from maxtool.runtime.loader import cuda_runtime\ncuda_runtime._places = lambda: ['x']\n"
    )
    ((kind, said),) = load(stub_gpu.environment(stubs), (cuda_artifact, None, {}), before=before)
    assert kind == "MachineLacks"
    assert "pip install nvidia-cuda-runtime" in said


def test_where_the_runtime_library_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Search by its name, which the system knows; in a toolkit; in NVIDIA's wheel."""
    inside = ["home/lib64", "path/targets/x86_64-linux/lib", "wheel/nvidia/cu13/lib"]
    files = [tmp_path / folder / "libcudart.so.13" for folder in inside]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "path"))
    monkeypatch.setattr(cuda_runtime, "USUAL", ())
    monkeypatch.setattr(sys, "path", [str(tmp_path / "wheel"), "nowhere"])
    assert list(cuda_runtime._places()) == ["libcudart.so.13", *map(str, files)]


def test_a_model_for_a_cpu_is_not_for_a_gpu(artifact: Path) -> None:
    cases: list[Case] = [(artifact, "cuda:1", {}), (artifact, "cpu", {})]
    refused, loaded = load(stub_gpu.environment(None), *cases)
    assert refused[0] == "DoesNotFit"
    assert "not for cuda:1. compile it with --target cuda" in refused[1]
    assert loaded == ["loaded", "cpu"]


CODES = ["sm_80.cubin", "sm_86.cubin", "sm_90.cubin", "compute_80.ptx", "compute_90.ptx"]


@pytest.mark.parametrize(
    ("gpu", "codes", "chosen"),
    [
        ((8, 0), CODES, "sm_80.cubin"),
        ((8, 6), CODES, "sm_86.cubin"),
        ((8, 9), CODES, "sm_86.cubin"),  # of its generation, the newest that is not newer
        ((9, 0), CODES, "sm_90.cubin"),
        ((12, 0), CODES, "compute_90.ptx"),
        ((8, 6), ["compute_80.ptx", "sm_89.cubin"], "compute_80.ptx"),  # code of a newer one
        ((8, 7), ["sm_80.cubin", "compute_80.ptx"], "compute_80.ptx"),  # a system on a chip
        ((8, 9), ["sm_87.cubin", "sm_86.cubin"], "sm_86.cubin"),
        ((8, 7), ["sm_87.cubin", "sm_80.cubin"], "sm_87.cubin"),
        ((10, 3), ["sm_100.cubin", "compute_90.ptx"], "sm_100.cubin"),
        ((12, 1), ["sm_120.cubin", "sm_90.cubin"], "sm_120.cubin"),
    ],
)
def test_which_code_is_chosen(
    gpu: tuple[int, int], codes: list[str], chosen: str, artifact: Path
) -> None:
    manifest = loader.Manifest(artifact)
    manifest.files = {
        manifest.folder / code: "" for code in ["model.so", "sub/sm_80.cubin", *codes]
    }
    result = cuda_code.choose_code(manifest, cuda_driver.Gpu(0, "stub", gpu, 0, 0))
    assert result == manifest.folder / chosen


@pytest.mark.parametrize(("needed", "runs"), [(99 << 10, True), (163 << 10, False), (None, True)])
def test_blocks_that_need_more_than_the_gpu_gives(
    needed: int | None, runs: bool, artifact: Path
) -> None:
    """The case of GPUs for games, which run the machine code of those for data centres."""
    manifest, gpu = loader.Manifest(artifact), cuda_driver.Gpu(0, "stub", (8, 9), 0, 99 << 10)
    manifest.files = {manifest.folder / "sm_80.cubin": ""}
    manifest.target = {"shared_memory": needed} if needed else {}
    if runs:
        assert cuda_code.choose_code(manifest, gpu).name == "sm_80.cubin"
        return
    with pytest.raises(loader.MachineLacks, match=r"99 KiB .* 163. compile it .*cuda:sm_89$"):
        cuda_code.choose_code(manifest, gpu)


def test_an_artifact_without_code(artifact: Path) -> None:
    with pytest.raises(loader.BadInput, match=r"lists no machine code \(sm_XX.cubin\)"):
        cuda_code.choose_code(loader.Manifest(artifact), cuda_driver.Gpu(0, "stub", (9, 0), 0, 0))


def test_calls_equal_those_of_the_cpu(
    artifact: Path, cuda_artifact: Path, stubs: Path, cuda_module: Path
) -> None:
    """Two texts, a state that is kept between calls, and its copy on the host."""
    code = """
model = loader.load(sys.argv[1])
state = model.new_state(batch=2)
calls = [("forward", {"input_ids": [[3, 4, 5], [1, 0, 9]]}, None)]
calls += [("prefill", {"input_ids": [[9, 8], [5, 4]], "position": [0]}, state)]
calls += [("decode", {"input_ids": [[7], [3]], "position": [2]}, state)]
outputs = [model.run(*call)["logits"].tolist() for call in calls]
answer([outputs, state.arrays[0].tolist()])
"""
    cpu = stub_gpu.run(code, stub_gpu.environment(None), artifact)
    gpu = stub_gpu.run(code, stub_gpu.environment(stubs, cuda_module), cuda_artifact)
    assert gpu == cpu


def test_two_models_have_their_own_code(
    cuda_artifact: Path, tmp_path: Path, stubs: Path, cuda_module: Path, ids: dict[str, list[int]]
) -> None:
    other = stub_gpu.make(tmp_path / "other", cuda_module, ids, ["compute_80.ptx"])
    code = """
models = [loader.load(folder) for folder in sys.argv[1:]]
for model in models:
    model(input_ids=[[3]])
import tvm_ffi
left = tvm_ffi.get_global_func("tvm_callback_cuda_compile", allow_missing=True)
answer([[line for line in log() if line.startswith("module")], left is None])
"""
    environment = stub_gpu.environment(stubs, cuda_module)
    result = stub_gpu.run(code, environment, cuda_artifact, other)
    assert result == [["module sm_90.cubin", "module compute_80.ptx"], True]


def test_one_artifact_on_two_gpus(cuda_artifact: Path, stubs: Path, cuda_module: Path) -> None:
    """Each has its code, also when the first is gone."""
    code = """
import gc
first, second = (loader.load(sys.argv[1], device=f"cuda:{i}") for i in range(2))
expected = first(input_ids=[[3]])["logits"]
same = [(second(input_ids=[[3]])["logits"] == expected).all()]
del first
gc.collect()
same.append((second(input_ids=[[3]])["logits"] == expected).all())
answer([list(map(bool, same)), [line for line in log() if line.startswith("module")]])
"""
    environment = stub_gpu.environment(stubs, cuda_module, gpus="8.0 9.0")
    same, modules = stub_gpu.run(code, environment, cuda_artifact)
    assert same == [True, True]
    assert modules == ["module sm_80.cubin", "module sm_90.cubin"]


def test_the_second_gpu(cuda_artifact: Path, stubs: Path, cuda_module: Path) -> None:
    code = """
model = loader.load(sys.argv[1], device="cuda:1")
ctypes.CDLL("libcuda.so.1").stub_use(0)
model(input_ids=[[3]])
answer([used(0), used(1) > 0, ctypes.CDLL("libcuda.so.1").stub_current()])
"""
    environment = stub_gpu.environment(stubs, cuda_module, gpus="9.0 9.0")
    assert stub_gpu.run(code, environment, cuda_artifact) == [0, True, 0]


REFUSED = {
    "error 222": ("MachineLacks", "the driver is older than the PTX"),
    "error 209": ("MachineLacks", "compile the model for it"),
    "error 700": ("RunError", "CUDA_ERROR_ILLEGAL_ADDRESS"),
}


def test_code_that_the_driver_refuses(cuda_artifact: Path, stubs: Path, cuda_module: Path) -> None:
    code = """
answers = []
for text in json.loads(sys.argv[2]):
    with open(sys.argv[1] + "/sm_90.cubin", "w") as file:
        file.write("sm_90.cubin\\n" + text + "\\n")
    try:
        loader.load(sys.argv[1], check=False)(input_ids=[[3]])
    except loader.RunError as error:
        answers.append([type(error).__name__, str(error)])
answer(answers)
"""
    environment = stub_gpu.environment(stubs, cuda_module)
    result = stub_gpu.run(code, environment, cuda_artifact, json.dumps(list(REFUSED)))
    for (kind, says), (raised, said) in zip(REFUSED.values(), result, strict=True):
        assert (raised, says in said) == (kind, True), said


def test_kernels_that_need_more_shared_memory_than_there_is() -> None:
    """TVM says it, and not the driver: in words that its library has."""
    words = "Failed to set the allowed dynamic shared memory size to "
    (library,) = (one for one in files("apache-tvm") or [] if one.name == "libtvm_runtime_cuda.so")
    assert words.encode() in library.read_binary()
    gpu = object.__new__(cuda_gpu.CudaGpu)
    gpu.gpu = cuda_driver.Gpu(0, "stub", (8, 9), 0, 99 << 10)
    error = gpu.refused("prefill", f"RuntimeError: {words}147456")
    assert isinstance(error, loader.MachineLacks)
    assert "less shared memory here" in str(error) and "cuda:sm_XX" in str(error)


def test_code_is_checked_like_every_file(
    cuda_artifact: Path, stubs: Path, cuda_module: Path
) -> None:
    (cuda_artifact / "sm_80.cubin").write_text("something else")
    environment = stub_gpu.environment(stubs, cuda_module)
    ((kind, said),) = load(environment, (cuda_artifact, None, {}))
    assert (kind, "sm_80.cubin" in said) == ("NotVerified", True)
