"""CUDA C++ to machine code without a GPU, and what the compiler reports of it."""

from __future__ import annotations

import struct
import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace
from typing import Any

import pytest

from maxtool.compiler.cuda import wheels
from maxtool.compiler.cuda.cuda_target import SHARED_MEMORY
from maxtool.compiler.cuda.device_code import DeviceCode, machine_code, portable_code
from maxtool.compiler.cuda.resources import Resources, read_resources
from maxtool.errors import CompilationFailed, MachineLacks

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="no compilers for macOS")

SCALE = """
#include <cuda_fp16.h>
#include <cuda/std/cstdint>
extern "C" __global__ void scale(half* x, cuda::std::int64_t n) {
  __shared__ float factor[8];
  factor[threadIdx.x & 7] = 2.0f;
  __syncthreads();
  if (threadIdx.x < n) x[threadIdx.x] = __float2half(__half2float(x[threadIdx.x]) * factor[1]);
}
"""
# An array whose index is not known lies in memory, 400 bytes of it.
INDEXED = """
extern "C" __global__ void indexed(float* x, int n) {
  float kept[100];
  for (int i = 0; i < 100; ++i) kept[i] = x[i];
  x[0] = kept[n] + kept[n / 2];
}
"""
# More values alive at once than a thread of so large a block has registers for.
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) spilling(float* x) {
  float kept[128];
  #pragma unroll
  for (int i = 0; i < 128; ++i) kept[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 128; ++i) x[i * 1024 + threadIdx.x] = kept[i] * kept[127 - i];
}
"""


def machine(cubin: bytes) -> tuple[int, int]:
    """The machine and the SM version that an ELF file says it is for."""
    assert cubin[:4] == b"\x7fELF"
    (flags,) = struct.unpack_from("<I", cubin, 48)
    return struct.unpack_from("<H", cubin, 18)[0], flags >> 8 & 0xFF


def compiled(source: str, *archs: str) -> list[DeviceCode]:
    return machine_code(portable_code(source, archs), archs)


def test_machine_code_for_every_architecture() -> None:
    codes = compiled(SCALE, *SHARED_MEMORY)
    numbers = [int(arch.removeprefix("sm_")) for arch in SHARED_MEMORY]
    assert [machine(code.data) for code in codes] == [(190, number) for number in numbers]
    assert [code.file for code in codes][:2] == ["sm_80.cubin", "sm_86.cubin"]


def test_ptx() -> None:
    code = portable_code(SCALE, ["sm_80", "sm_90"])
    assert code.file == "compute_80.ptx"
    assert not code.is_machine and code.data.endswith(b"}\n\n")
    assert b".target sm_80\n" in code.data and b".entry scale(" in code.data


def test_what_kernels_take() -> None:
    source = SCALE + INDEXED + SPILLING
    (code,) = compiled(source, "sm_80")
    result = read_resources(code.log)
    assert result.keys() == {"scale", "indexed", "spilling"}
    assert result["scale"].shared == 32
    assert not (result["scale"].spills or result["scale"].stack)
    assert result["indexed"].stack >= 400 and not result["indexed"].spills
    assert result["spilling"].spills and result["spilling"].registers == 64


def test_the_same_bytes_again() -> None:
    source = SCALE + INDEXED + SPILLING
    first, second = (compiled(source, "sm_80", "sm_90") for _ in range(2))
    assert [code.data for code in first] == [code.data for code in second]


def test_reports_are_read_whole() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Function properties for called
ptxas         .     16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compiling entry function 'b' for 'sm_90'
ptxas info    : Function properties for b
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers
"""
    assert read_resources(log) == {
        "a": Resources(registers=255, stack=24, spill_stores=4, spill_loads=12, shared=1024),
        "b": Resources(registers=8, stack=0, spill_stores=0, spill_loads=0, shared=0),
    }
    assert read_resources("") == {}


def test_source_that_does_not_compile() -> None:
    broken = SCALE.replace("factor[1]", "factors[1]")
    with pytest.raises(CompilationFailed, match="for compute_90") as raised:
        portable_code(broken, ["sm_90"])
    assert 'identifier "factors" is undefined' in "\n".join(raised.value.problems)


def test_arithmetic_is_not_approximate() -> None:
    source = 'extern "C" __global__ void f(float* x) { x[0] = expf(x[1]) / sqrtf(x[2]); }'
    code = portable_code(source, ["sm_90"])
    assert b"div.rn.f32" in code.data and b"sqrt.rn.f32" in code.data


def test_ptx_that_does_not_compile() -> None:
    ptx = portable_code(SCALE, ["sm_80"])
    broken = DeviceCode(ptx.name, ptx.data.replace(b"bar.sync", b"bar.walk"))
    with pytest.raises(CompilationFailed, match="ptxas for sm_90 failed") as raised:
        machine_code(broken, ["sm_90"])
    assert ".walk" in "\n".join(raised.value.problems)


@pytest.fixture
def fresh() -> Any:
    wheels.compilers.cache_clear()
    yield
    wheels.compilers.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(wheels, "distribution", absent)
    with pytest.raises(MachineLacks) as raised:
        portable_code(SCALE, ["sm_90"])
    assert len(raised.value.problems) == 5 and "nvidia-cuda-nvrtc 13" in raised.value.problems
    assert "pip install 'maxtool[cuda]'" in (raised.value.hint or "")


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("13.0.88", "nvidia-cuda-nvcc 13.5"),
        ("13.4rc1", "nvidia-cuda-nvcc 13.5"),
        ("12.9.86", "nvidia-cuda-nvcc 13"),
        (None, "nvidia-cuda-nvcc 13"),  # of a package whose files are gone in part
    ],
)
def test_an_assembler_that_does_not_go_with_the_compiler(
    version: str | None, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> SimpleNamespace:
        return SimpleNamespace(version=version if name == wheels.NVCC else "13.5.37")

    monkeypatch.setattr(wheels, "distribution", found)
    with pytest.raises(MachineLacks) as raised:
        wheels.compilers()
    assert [one.partition(",")[0] for one in raised.value.problems] == [problem]


@pytest.mark.usefixtures("fresh")
def test_bindings_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(MachineLacks, match=r"maxtool\[cuda\]"):
        wheels.compilers()
