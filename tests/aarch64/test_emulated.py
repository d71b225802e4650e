"""Kernels and artifacts for aarch64, run by QEMU: each way to multiply quantized numbers there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from maxtool import artifact
from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.kernels.cpu.integer_dot import PLAIN, SETS, instruction_set
from maxtool.quantization import QuantizationEncoding
from tests.artifact.quantized_files import SAMPLE, planned
from tests.effort import sampled
from tests.parity.yardstick import FOLDER
from tests.schemes import pure

from .emulation import EMULATED, PYTHON, environment, needs_system

KERNELS = Path(__file__).resolve().parents[1] / "compiler" / "kernels"
QUANTIZED = "test_quantized.py"

# CPUs: with `smmla`, with `sdot` alone, with neither.
CPUS = {"neoverse-v1": SETS["i8mm"], "neoverse-n1": SETS["dotprod"], "aarch64-linux-gnu": PLAIN}
# The first runs the tests of the usual kernels, all of them those in which they differ.
USUAL = (
    *("attention", "block_attention", "columns", "epilogues", "experts", "integer_dot", "linear"),
    *("pairs", "quantized_cache", "rowwise", "slots", "special", "winograd"),
)
PRODUCTS = [*((cpu, QUANTIZED) for cpu in CPUS), ("neoverse-v1", "test_integer_dot.py")]
FILES = {*(("neoverse-v1", f"test_{name}.py") for name in USUAL), *PRODUCTS}

SOURCES = {
    "Q4_0": (SAMPLE, {"quantize": pure(QuantizationEncoding.Q4_0)}),
    "Q4_K_M": (FOLDER / "Q4_K_M.gguf", {}),
}

pytestmark = [pytest.mark.slow, pytest.mark.peers]


@pytest.fixture(autouse=True)
def _system(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_system()
    monkeypatch.setenv("PATH", environment()["PATH"])  # the linker is there


@pytest.mark.parametrize("cpu", CPUS)
def test_each_cpu_has_its_way_to_multiply(cpu: str) -> None:
    assert instruction_set(cpu_target(f"cpu:{cpu}")) is CPUS[cpu]


@pytest.mark.parametrize(("cpu", "file"), sampled(sorted(FILES), *PRODUCTS))
def test_kernels(cpu: str, file: str) -> None:
    """The fast tests of kernels, which compare with what NumPy computes outside."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    fast = ["--quick", "-m", "not slow"]
    assert " passed" in run(*command, *fast, str(KERNELS / file), **{EMULATED: f"cpu:{cpu}"})


BOTH = [(cpu, name) for cpu in CPUS for name in SOURCES]


@pytest.mark.parametrize(("cpu", "name"), sampled(BOTH, BOTH[0], BOTH[3], BOTH[4]))
def test_artifacts(cpu: str, name: str, tmp_path: Path) -> None:
    """Outputs are compared with those of the graph, which were computed here."""
    source, options = SOURCES[name]
    output = tmp_path / "out"
    artifact.make(planned(source, output, target=f"cpu:{cpu}", check=True, **options))
    program = [str(PYTHON), str(output / "run.py")]
    run(*program, "--check")
    run(*program, "--prompt", "Once upon a time", "--max-tokens", "4")


def run(*command: str, **variables: str) -> str:
    """Run a program, which must end well, and return what it printed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=KERNELS.parents[2],
        env=environment() | variables,
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}{done.stderr[-2000:]}"
    return done.stdout
