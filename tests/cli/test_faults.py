"""Outputs of commands that are killed, that meet each other, or that have no room.

Every line of the code that puts an output in place is ended in ``tests/files/test_faults.py``, and
sources are changed in between in ``tests/weights/test_changes.py``.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ChangedFile
from maxtool.weights import open_checkpoint
from tests.effort import thinned

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests" / "data" / "tiny-llama"
OUTPUTS = ("out", "out.gguf")
FEW = 5
MANY = {"file": 60, "folder": 60, "splits": 60, "artifact": 30}


def begin(output: Path, *options: str, limit: Callable[[], None] | None = None) -> subprocess.Popen:
    command = [sys.executable, "-m", "maxtool", "convert", str(SOURCE), "-o", str(output), *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit
    )


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))  # noqa: PTH208


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("file", FEW),
        ("folder", FEW),
        ("splits", FEW),
        *(pytest.param(kind, count, marks=pytest.mark.explored) for kind, count in MANY.items()),
    ],
)
def test_kills_at_random_moments(tmp_path: Path, kind: str, count: int) -> None:
    command = [sys.executable, "-m", "tests.cli.kills", str(tmp_path), kind, str(count), "0"]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True)
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    assert result["found"]["old"] + result["found"]["new"] == count


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(OUTPUTS, "out"))
def test_two_writers_at_once(tmp_path: Path, name: str) -> None:
    """Fail one of two writers without --force, whichever comes second."""
    both = [begin(tmp_path / name) for _ in range(2)]
    said = [process.communicate(timeout=120)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], said
    assert "--force" in "".join(said)
    assert names(tmp_path) == [name]
    assert open_checkpoint(tmp_path / name).tensors


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(OUTPUTS, "out"))
def test_two_writers_with_force(tmp_path: Path, name: str) -> None:
    both = [begin(tmp_path / name, "--force", "--dtype", kind) for kind in ("float16", "bfloat16")]
    said = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert names(tmp_path) == [name]
    kinds = {info.type_name for info in open_checkpoint(tmp_path / name).tensors.values()}
    assert len(kinds & {"F16", "BF16"}) == 1


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(OUTPUTS, "out.gguf"))
def test_a_file_that_may_not_become_so_large(tmp_path: Path, name: str) -> None:
    """Fail as on a full disk: the system refuses to write on in the middle of the tensors."""
    first = begin(tmp_path / name)
    assert first.communicate(timeout=120)[0].startswith("wrote")
    before = open_checkpoint(tmp_path / name).path.stat().st_ino
    process = begin(
        tmp_path / name,
        "--force",
        limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)),
    )
    _, said = process.communicate(timeout=120)
    assert process.returncode == 6
    assert "Traceback" not in said
    assert names(tmp_path) == [name]
    assert (tmp_path / name).stat().st_ino == before


@pytest.mark.long
@pytest.mark.parametrize("option", ["--split-max-size", "--sha256"])
def test_several_files_of_which_one_may_not_become_so_large(tmp_path: Path, option: str) -> None:
    """Leave every old file as it was, and none of the new ones."""
    options = [option, "30K"] if option == "--split-max-size" else [option]
    first = begin(tmp_path / "out.gguf", *options)
    assert first.communicate(timeout=120)[0].startswith("wrote")
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    assert len(before) > 1
    process = begin(
        tmp_path / "out.gguf",
        *("--force", *options),
        limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
    )
    _, said = process.communicate(timeout=120)
    assert process.returncode == 6, said
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a file system of its own")
def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """Fail when another process takes the room that there was during planning."""
    code = (
        "import shutil, sys; from pathlib import Path; from maxtool.cli.app import app\n"
        "shutil.disk_usage = lambda _: shutil._ntuple_diskusage(1 << 40, 0, 1 << 40)\n"
        f"app(['convert', {str(SOURCE)!r}, '-o', sys.argv[1] + '/out.gguf'])"
    )
    mounted = f"mount -t tmpfs -o size=64k tmpfs {tmp_path} && "
    script = f'{mounted}{sys.executable} -c "$1" {tmp_path}; code=$?; ls -A {tmp_path}; exit $code'
    command = ["unshare", "-rm", "sh", "-c", script, "sh", code]
    done = subprocess.run(command, capture_output=True, check=False, cwd=ROOT, text=True)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("no file system may be made here")
    assert done.returncode == 6, done.stderr
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


# Outputs of several files, by what cuts them.
CUT: dict[str, dict[str, Any]] = {
    "out": {"shard_size": 30_000},
    "out.gguf": {"split_max_size": 30_000},
}


@pytest.mark.parametrize("name", CUT)
def test_a_source_that_is_cut_while_several_files_are_written(tmp_path: Path, name: str) -> None:
    """Cut the source behind the first file: the old output stays, and nothing else."""
    source, folder = shutil.copytree(SOURCE, tmp_path / "source"), tmp_path / "to"
    folder.mkdir()
    convert(prepare(Request(source, folder / name, **CUT[name])))
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert len(before) > 2
    planned = prepare(Request(source, folder / name, force=True, **CUT[name]))
    done = 0

    def cut(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if done > 30_000:
            os.truncate(source / "model.safetensors", 20_000)

    with pytest.raises(ChangedFile):
        convert(planned, cut)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    assert not [entry for entry in names(folder) if entry.startswith(".")]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a file system of its own")
@pytest.mark.parametrize("options", [["out", "--shard-size"], ["out.gguf", "--split-max-size"]])
def test_a_read_only_place_for_several_files(tmp_path: Path, options: list[str]) -> None:
    """Mount it so: the user who runs the tests may be one whom no permissions stop."""
    name, option = options
    mounted = f"mount -t tmpfs -o ro tmpfs {tmp_path} && "
    run = f"{sys.executable} -m maxtool convert {SOURCE} -o {tmp_path}/{name} {option} 30K"
    script = f"{mounted}{run}; code=$?; ls -A {tmp_path}; exit $code"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script],
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
    )
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("no file system may be made here")
    assert done.returncode == 6
    assert "Read-only file system" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
