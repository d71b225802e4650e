"""CUDA targets by name, and the GPUs that a driver tells of."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from maxtool.compiler.cuda.cuda_target import SHARED_MEMORY, CudaTarget, cuda_target
from maxtool.errors import MachineLacks, MissingDevice, UsageError
from maxtool.graph import gpus

# A driver with the GPUs listed in CAPABILITIES, or one that fails or crashes.
DRIVER = """
#include <stdlib.h>
static int found[] = { CAPABILITIES };
int cuInit(unsigned flags) { if (CRASH) abort(); return FAILURE; }
int cuDeviceGetCount(int *count) { *count = sizeof found / sizeof *found / 2; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  if (attribute != 75 && attribute != 76) return 1;
  *value = found[2 * device + attribute - 75];
  return 0;
}
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace CUDA's driver by a library with the given answers."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build a driver with")

    def install(capabilities: str, *, crash: bool = False, failure: int = 0) -> None:
        source = tmp_path / "driver.c"
        source.write_text(DRIVER)
        values = {"CAPABILITIES": capabilities, "CRASH": int(crash), "FAILURE": failure}
        flags = [f"-D{name}={value}" for name, value in values.items()]
        library = tmp_path / "libcuda.so.1"
        command = [compiler, "-shared", "-fPIC", *flags, "-o", str(library), str(source)]
        subprocess.run(command, check=True)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        monkeypatch.setattr(gpus, "has_driver", lambda: True)

    return install


@pytest.mark.parametrize(
    ("name", "archs"),
    [
        *((f"cuda:{arch}", (arch,)) for arch in SHARED_MEMORY),
        ("cuda:sm_100,sm_80, sm_90", ("sm_80", "sm_90", "sm_100")),
        ("cuda:sm_80,sm_80", ("sm_80",)),
    ],
)
def test_names(name: str, archs: tuple[str, ...]) -> None:
    target = cuda_target(name)
    assert (target.kind, target.archs, target.ptx, target.host) == ("cuda", archs, False, False)
    assert target.tvm.attrs["arch"] == archs[0]
    assert target.manifest["archs"] == list(archs)


def test_ptx_is_asked_for() -> None:
    target = cuda_target("cuda:sm_90,sm_80", ptx=True)
    assert target.ptx and target.manifest["ptx"] is True


def test_a_block_has_the_shared_memory_that_all_architectures_have() -> None:
    assert cuda_target("cuda:sm_90").shared_memory == 227 << 10
    target = cuda_target("cuda:sm_90,sm_80")
    assert target.shared_memory == target.manifest["shared_memory"] == 163 << 10
    assert cuda_target("cuda:sm_90,sm_80,sm_89").shared_memory == 99 << 10


def test_the_host_is_any_machine_of_this_kind_unless_it_is_named() -> None:
    usual = cuda_target("cuda:sm_90").processor
    assert not usual.features or usual.triple.startswith("aarch64")
    other = cuda_target("cuda:sm_90,cpu:neoverse-v2").processor
    assert (other.triple, other.cpu) == ("aarch64-linux-gnu", "neoverse-v2")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cuda:", "no target 'cuda:'"),
        ("cuda:sm_91", "'sm_91'.*did you mean sm_90"),
        ("cuda:90", "'90'.*Known: sm_80, sm_86, sm_89, sm_90, sm_100, sm_120"),
        ("cuda:sm_70,sm_90,sm_75", "'sm_70', 'sm_75'"),
        ("cuda:sm_90,", "''"),
        ("cuda:cpu:x86-64", "no CUDA architecture is named"),
        ("cuda:sm_90,cpu:x86-64,cpu:znver5", "several CPUs"),
        ("cuda:sm_90,cpu:zenver5", "did you mean znver5"),
        ("gpu", "no target 'gpu'"),
    ],
)
def test_what_names_no_target(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        cuda_target(name)


@pytest.mark.parametrize(
    ("capabilities", "archs"),
    [
        ("9,0", ("sm_90",)),
        ("12,0, 8,6, 8,6", ("sm_86", "sm_120")),
        # Machine code runs on later GPUs of its generation.
        ("8,8", ("sm_86",)),
        ("10,3", ("sm_100",)),
    ],
)
def test_the_gpus_here(
    driver: Callable[..., None], capabilities: str, archs: tuple[str, ...]
) -> None:
    driver(capabilities)
    target = cuda_target("cuda")
    assert (target.archs, target.host, target.processor.host) == (archs, True, True)


@pytest.mark.parametrize("capability", ["7,5", "8,7", "11,0", "13,0"])
def test_a_gpu_that_nothing_compiles_for(driver: Callable[..., None], capability: str) -> None:
    driver(capability)
    with pytest.raises(MissingDevice, match=capability.replace(",", r"\.")):
        cuda_target("cuda")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"capabilities": ""}, "finds no GPU"),
        ({"capabilities": "9,0", "crash": True}, "does not work"),
        ({"capabilities": "9,0", "failure": 999}, "cuInit gives error 999"),
    ],
)
def test_drivers_that_are_of_no_use(
    driver: Callable[..., None], options: dict[str, object], said: str
) -> None:
    driver(**options)
    with pytest.raises(MachineLacks, match=said) as raised:
        cuda_target("cuda")
    assert "cuda:sm_90" in (raised.value.hint or "")


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "has_driver", lambda: False)
    with pytest.raises(MissingDevice, match=r"cannot be loaded.*--target cuda:sm_90"):
        cuda_target("cuda")


def test_targets_are_values() -> None:
    assert cuda_target("cuda:sm_90") == cuda_target("cuda:sm_90") != cuda_target("cuda:sm_80")
    assert isinstance(hash(cuda_target("cuda:sm_90")), int)
    assert CudaTarget.kind == "cuda" and CudaTarget.packing is None
