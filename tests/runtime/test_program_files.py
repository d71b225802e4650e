"""Files of an artifact that are missing, changed, linked, or added by running its program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import thinned

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact
from tiny_artifact import PROMPT, STORY, fails, manifest_of


@pytest.mark.parametrize("name", ["loader", "loader/__init__.py", "loader/model.py"])
def test_the_loader_is_missing(artifact: Path, name: str) -> None:
    (artifact / name).rename(artifact / "moved")
    told = tiny_artifact.run(artifact, "--ids", "1")
    assert told.returncode == 6
    assert told.stderr.startswith("error: ")
    assert str(artifact / "loader") in told.stderr
    assert told.stderr.count("\n") == 1


def test_running_adds_no_files(artifact: Path) -> None:
    before = sorted(artifact.rglob("*"))
    assert tiny_artifact.run(artifact, "--info").returncode == 0
    assert sorted(artifact.rglob("*")) == before


def test_nothing_is_written_into_the_artifact(artifact: Path) -> None:
    before = sorted(artifact.iterdir())
    tiny_artifact.run(artifact, "--prompt", PROMPT)
    assert sorted(artifact.iterdir()) == before


def test_the_compiler_is_really_blocked(artifact: Path) -> None:
    (artifact / "run.py").write_text("import tvm")
    assert "blocked" in tiny_artifact.run(artifact).stderr


@pytest.mark.parametrize(
    "name",
    thinned(
        ["model.so", "weights.bin", "tokenizer.json", "run.py", "loader/model.py"],
        "weights.bin",
        "loader/model.py",
    ),
)
def test_a_changed_file_is_refused(artifact: Path, name: str) -> None:
    with (artifact / name).open("ab") as stream:
        stream.write(b"\n")
    fails(artifact, 1, "--prompt", PROMPT, says=name)
    fails(artifact, 1, "--info", says=name)
    assert tiny_artifact.run(artifact, "--prompt", PROMPT, "--no-verify").returncode == 0


@pytest.mark.parametrize("name", ["model.so", "weights.bin", "tokenizer.json"])
def test_a_missing_file(artifact: Path, name: str) -> None:
    (artifact / name).unlink()
    fails(artifact, 3, "--prompt", PROMPT, says=name)


def test_a_link_out_of_the_folder(artifact: Path, tmp_path: Path) -> None:
    (artifact / "weights.bin").rename(tmp_path / "weights.bin")
    (artifact / "weights.bin").symlink_to(tmp_path / "weights.bin")
    fails(artifact, 3, "--info", says="outside the folder")


def test_standalone_needs_no_tvm_package(artifact: Path) -> None:
    package = next(Path(p) / "tvm" for p in sys.path if (Path(p) / "tvm" / "lib").is_dir())
    (artifact / "lib").mkdir()
    library = artifact / "lib" / "libtvm_runtime.so"
    shutil.copy(package / "lib" / "libtvm_runtime.so", library)
    fails(artifact, 1, "--ids", "1", says="libtvm_runtime.so")
    root = manifest_of(artifact)
    root["files"]["lib/libtvm_runtime.so"] = tiny_artifact.checksum(library)
    tiny_artifact.write(artifact, root)
    done = tiny_artifact.run(artifact, "--prompt", PROMPT)
    assert done.stdout == PROMPT + STORY + "\n", done.stderr


def test_no_runtime_anywhere(artifact: Path) -> None:
    hide = artifact.parent / "hide.py"
    hide.write_text(
        "import runpy, sys, tvm_ffi, tokenizers\n"
        "sys.path = [p for p in sys.path if 'site-packages' not in p]\n"
        f"sys.argv = ['run.py', '--ids', '1']\nrunpy.run_path({str(artifact / 'run.py')!r}, "
        "run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, hide], capture_output=True, text=True, check=False)
    assert done.returncode == 6, done.stderr
    assert "--standalone" in done.stderr
