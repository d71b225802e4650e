"""Compiled quantizers are kept below the user's cache, and used if nothing about them is odd."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from maxtool.compiler.quantizers import kept_libraries
from maxtool.compiler.quantizers.kept_libraries import find, keep

WHAT = ("Q8_0", "float32", False)

# Quantizes, and says what it is and whether the compiler was loaded for it.
QUANTIZING = """
import hashlib, json, sys
import numpy as np
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.quantization.acceleration import compiled_for, find_quantizer
values = np.random.default_rng(0).standard_normal((64, 256), np.float32)
with compiled_for([QuantizationEncoding.Q4_0], print):
    assert find_quantizer(QuantizationEncoding.Q4_0, values.dtype) is not None
    actual = quantize(values, QuantizationEncoding.Q4_0)
assert np.array_equal(actual, quantize(values, QuantizationEncoding.Q4_0))
print(json.dumps("tvm" in sys.modules))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MAXTOOL_CACHE", str(tmp_path))
    monkeypatch.setattr(kept_libraries, "_machine", lambda: ("a CPU",))
    return tmp_path / kept_libraries.FOLDER


def kept(content: bytes = b"a library") -> Path:
    keep(16, lambda path: path.write_bytes(content), *WHAT)
    library = find(*WHAT)
    assert library is not None
    assert library.batch == 16
    assert library.path.read_bytes() == content
    return library.path


def test_what_was_kept_is_found(folder: Path) -> None:
    assert find(*WHAT) is None
    assert kept().parent == folder
    assert find("Q4_0", *WHAT[1:]) is None
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"another library", b"a librarY"])
def test_what_was_damaged_is_not(folder: Path, content: bytes) -> None:
    kept().write_bytes(content)
    assert find(*WHAT) is None
    kept()
    assert folder.is_dir()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("mode", [0o660, 0o606])
def test_what_others_may_write_is_not(mode: int) -> None:
    kept().chmod(mode)
    assert find(*WHAT) is None


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_may_write_is_left_alone(folder: Path, mode: int) -> None:
    kept()
    folder.chmod(mode)
    assert find(*WHAT) is None
    keep(8, lambda _: pytest.fail("a library was made"), *WHAT)


def test_files_of_other_users_are_not_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept()
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert find(*WHAT) is None
    assert folder.is_dir()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("what", ["_code", "_machine"])
def test_other_code_and_other_machines_have_their_own(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    kept()
    another = {"_code": "another", "_machine": ("another CPU",)}[what]
    monkeypatch.setattr(kept_libraries, what, lambda: another)
    assert find(*WHAT) is None


@pytest.mark.usefixtures("folder")
def test_a_cpu_that_is_taken_for_another_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kept()
    monkeypatch.setenv("MAXTOOL_HOST_CPU", "x86-64-v3")
    assert find(*WHAT) is None


def test_nothing_is_kept_where_the_cpu_is_not_known(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_libraries, "_machine", tuple)
    keep(8, lambda _: pytest.fail("a library was made"), *WHAT)
    assert find(*WHAT) is None
    assert not folder.exists()


def test_the_oldest_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_libraries, "MOST", 2)
    for number in range(4):
        keep(8, lambda path: path.write_bytes(b"a library"), number)
        for path in folder.glob("*.so"):
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    assert [find(number) is not None for number in range(4)] == [False, False, True, True]


def test_the_code_is_this_package() -> None:
    files = {path.name for path in kept_libraries._sources()}
    assert {"kept_libraries.py", "cpu_target.py", "kernel_builder.py", "tables.py"} <= files


def quantized(cache: Path) -> bool:
    """Quantize in a process of its own; return whether it loaded the compiler."""
    environment = {**os.environ, "MAXTOOL_CACHE": str(cache)}
    command = [sys.executable, "-c", QUANTIZING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return bool(json.loads(done.stdout))


@pytest.mark.long
def test_the_compiler_is_loaded_once(tmp_path: Path) -> None:
    """Keep nothing where the CPU is not known: there the compiler is loaded each time."""
    known = bool(kept_libraries._machine())
    assert quantized(tmp_path)
    assert quantized(tmp_path) is not known
    for library in tmp_path.rglob("*.so"):
        renamed(library, b"\x7fELF no library")
    assert quantized(tmp_path)


def renamed(library: Path, content: bytes) -> None:
    """Give a library other content, and the name that goes with it."""
    key, batch, _ = library.stem.split("-")
    library.unlink()
    name = f"{key}-{batch}-{hashlib.sha256(content).hexdigest()}.so"
    library.with_name(name).write_bytes(content)


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert quantized(tmp_path / "file")
