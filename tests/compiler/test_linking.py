"""Linking for this machine and for others, and what is said when it cannot be done."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

from maxtool.compiler import linking
from maxtool.compiler.cpu_target import CpuTarget, cpu_target
from maxtool.compiler.kernels.cpu import builder
from maxtool.compiler.kernels.cpu.norm import rms_norm
from maxtool.errors import CompilationFailed, MachineLacks

X86_64, AARCH64 = 62, 183  # e_machine of the ELF header


def compiled(target: CpuTarget) -> object:
    return builder.build({"norm": rms_norm(target.tile, 8, 1e-5)}, target.tvm)


def machine(path: Path) -> int:
    header = path.read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    return int(struct.unpack_from("<H", header, 18)[0])


def with_tools(monkeypatch: pytest.MonkeyPatch, **tools: str) -> None:
    """Pretend that only these programs are installed, and no ziglang."""
    monkeypatch.setattr(linking.shutil, "which", lambda name: tools.get(re.sub(r"\W", "_", name)))
    monkeypatch.setattr(linking.importlib.util, "find_spec", lambda _: None)


@pytest.fixture
def target() -> CpuTarget:
    return cpu_target()


def test_a_library_loads_and_runs(tmp_path: Path, target: CpuTarget) -> None:
    path = tmp_path / "model.so"
    linking.export_library(compiled(target), path, target)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.so"]
    function = tvm.runtime.load_module(str(path))["norm"]
    x, w = np.arange(16, dtype="f4").reshape(2, 8), np.ones(8, "f4")
    y = tvm.runtime.tensor(np.zeros_like(x))
    function(tvm.runtime.tensor(x), tvm.runtime.tensor(w), y)
    np.testing.assert_allclose(y.numpy(), x / np.sqrt((x**2).mean(-1, keepdims=True)), rtol=1e-5)


def test_a_library_replaces_an_older_one(tmp_path: Path, target: CpuTarget) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(b"old")
    linking.export_library(compiled(target), path, target)
    assert machine(path) in (X86_64, AARCH64)


def test_a_failing_linker_leaves_nothing(
    tmp_path: Path, target: CpuTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\necho 'no such section' >&2\nexit 7\n")
    script.chmod(0o755)
    with_tools(monkeypatch, cc=str(script))
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(CompilationFailed, match="exit status 7") as raised:
        linking.export_library(compiled(target), out / "model.so", target)
    assert raised.value.problems == ("no such section",)
    assert not list(out.iterdir())


def test_a_linker_that_cannot_start_is_named(
    tmp_path: Path, target: CpuTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_tools(monkeypatch, cc=str(tmp_path / "missing"))
    with pytest.raises(CompilationFailed, match="missing did not run"):
        linking.export_library(compiled(target), tmp_path / "model.so", target)


def test_no_linker_says_what_to_install(target: CpuTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    with_tools(monkeypatch)
    with pytest.raises(MachineLacks) as caught:
        linking.find_linker(target)
    assert caught.value.hint == "install a C compiler, such as gcc, or `pip install ziglang`"


def test_macos_is_not_linked_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking.platform, "system", lambda: "Linux")
    with pytest.raises(MachineLacks, match="macOS"):
        linking.find_linker(cpu_target("cpu:apple-m1"))


def test_the_system_compiler_does_not_link_other_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linking.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(linking.platform, "system", lambda: "Linux")
    other = cpu_target("cpu:aarch64-linux-gnu")
    with_tools(monkeypatch, cc="/usr/bin/cc")
    with pytest.raises(MachineLacks) as caught:
        linking.find_linker(other)
    assert caught.value.hint == (
        "the C compiler here links for x86_64 only: "
        "install binutils-aarch64-linux-gnu or lld, or `pip install ziglang`"
    )
    with_tools(monkeypatch, cc="/usr/bin/cc", ld_lld="/usr/bin/ld.lld")
    assert linking.find_linker(other) == ["/usr/bin/ld.lld", "-shared", "--build-id=none"]
    with_tools(monkeypatch, cc="/usr/bin/cc", aarch64_linux_gnu_ld="/bin/aarch64-ld")
    assert linking.find_linker(other) == ["/bin/aarch64-ld", "-shared", "--build-id=none"]
    native = linking.find_linker(cpu_target("cpu:x86-64-v3"))
    assert native == ["/usr/bin/cc", "-shared", "-fPIC", "-Wl,--build-id=none"]


def test_ziglang_is_the_last_resort(monkeypatch: pytest.MonkeyPatch, target: CpuTarget) -> None:
    with_tools(monkeypatch)
    monkeypatch.setattr(linking.importlib.util, "find_spec", lambda _: object())
    expected = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "--build-id=none"]
    assert linking.find_linker(target) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("cpu:aarch64-linux-gnu", AARCH64), ("cpu:x86-64-v3", X86_64)]
)
def test_other_machines_link(tmp_path: Path, name: str, expected: int) -> None:
    target = cpu_target(name)
    try:
        linking.find_linker(target)
    except MachineLacks as error:
        pytest.skip(str(error))
    path = tmp_path / "model.so"
    linking.export_library(compiled(target), path, target)
    assert machine(path) == expected
