"""Machines that a model was not compiled for: each is told what it lacks, and no code is loaded."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest

from maxtool.runtime.loader import host, tile_registers
from maxtool.runtime.loader.errors import MachineLacks
from maxtool.runtime.loader.host import check_machine

LINUX = {"triple": "x86_64-linux-gnu"}
CASES = [
    (LINUX, "Darwin", "x86_64", "compiled for Linux, and this machine runs macOS"),
    (LINUX, "Windows", "AMD64", "compiled for Linux, and this machine runs Windows"),
    (LINUX, "FreeBSD", "amd64", "compiled for Linux, and this machine runs FreeBSD"),
    (LINUX, "Linux", "aarch64", "compiled for x86_64, and this machine is aarch64"),
    (LINUX, "Darwin", "arm64", "compiled for x86_64, and this machine is aarch64"),
    ({"triple": "arm64-apple-darwin23"}, "Linux", "aarch64", "compiled for macOS"),
    ({"triple": "aarch64-unknown-linux-gnu"}, "Darwin", "arm64", "compiled for Linux"),
]


@pytest.mark.parametrize(("target", "system", "machine", "says"), CASES)
def test_a_model_for_another_machine_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    target: Mapping[str, object],
    system: str,
    machine: str,
    says: str,
) -> None:
    be(monkeypatch, system, machine)
    with pytest.raises(MachineLacks, match=says):
        check_machine(target)


@pytest.mark.parametrize(
    ("triple", "system", "machine"),
    [
        ("x86_64-linux-gnu", "Linux", "x86_64"),
        ("aarch64-unknown-linux-gnu", "Linux", "aarch64"),
        ("arm64-apple-macosx14.0", "Darwin", "arm64"),
        ("", "Linux", "x86_64"),
    ],
)
def test_a_model_for_this_machine_is_taken(
    monkeypatch: pytest.MonkeyPatch, triple: str, system: str, machine: str
) -> None:
    be(monkeypatch, system, machine)
    check_machine({"triple": triple})


# What Linux lists of a Neoverse V1 and of a Cortex-A53.
ARM = {
    "V1": "processor : 0\nFeatures\t: fp asimd fphp asimdhp sve asimddp i8mm bf16\nCPU part: 0xd40",
    "A53": "processor : 0\nFeatures\t: fp asimd evtstrm aes crc32\nCPU part: 0xd03",
}
X86 = "processor : 0\nflags\t\t: fpu fma avx2 avx512_bf16\nvmx flags\t: avx512f"
MATTER = ["bf16", "dotprod", "fullfp16", "i8mm", "neon", "sve"]


@pytest.mark.parametrize(
    ("arch", "listing", "features", "missing"),
    [
        ("aarch64", ARM["V1"], MATTER, ""),
        ("aarch64", ARM["V1"], [*MATTER, "sve2"], "sve2"),
        ("aarch64", ARM["A53"], ["neon"], ""),
        ("aarch64", ARM["A53"], MATTER, "bf16, dotprod, fullfp16, i8mm, sve"),
        ("aarch64", X86, MATTER, ""),  # an emulator that shows the file of the machine it runs on
        ("aarch64", "", MATTER, ""),
        ("x86_64", X86, ["avx2", "avx512bf16", "fma"], ""),
        ("x86_64", X86, ["avx2", "avx512f"], "avx512f"),
        ("x86_64", X86, ["amx-int8", "avx2"], "amx-int8"),
        ("x86_64", "", ["avx2"], ""),
    ],
)
def test_a_model_for_a_better_cpu_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arch: str,
    listing: str,
    features: list[str],
    missing: str,
) -> None:
    be(monkeypatch, "Linux", arch)
    (tmp_path / "cpuinfo").write_text(listing)
    monkeypatch.setattr(host, "CPU_INFO", str(tmp_path / "cpuinfo"))
    target = {"triple": f"{arch}-linux-gnu", "features": features}
    if not missing:
        check_machine(target)
        return
    with pytest.raises(MachineLacks, match=f"for a CPU with {missing}, which"):
        check_machine(target)


@pytest.mark.parametrize("leave", [True, False])
def test_tiles_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, leave: bool
) -> None:
    """A model that uses AMX, on a machine whose system gives leave to, or does not."""
    asked = []

    class System:
        def syscall(self, *numbers: int) -> int:
            asked.append(numbers)
            return 0 if leave else -1

    be(monkeypatch, "Linux", "x86_64")
    (tmp_path / "cpuinfo").write_text("flags : amx_tile amx_int8\n")
    monkeypatch.setattr(host, "CPU_INFO", str(tmp_path / "cpuinfo"))
    monkeypatch.setattr(tile_registers.ctypes, "CDLL", lambda *_, **__: System())
    target = {"triple": "x86_64-linux-gnu", "features": ["amx-int8"]}
    with nullcontext() if leave else pytest.raises(MachineLacks, match="does not let it use"):
        check_machine(target)
    assert asked == [(158, 0x1023, 18)]


def be(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
