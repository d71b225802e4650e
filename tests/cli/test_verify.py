"""``maxtool verify``: files of an artifact that were changed, added or lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from tests.runtime import tiny_artifact


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of a tiny module, as it was compiled."""
    module = tiny_artifact.compile_module(tmp_path_factory.mktemp("module"))
    folder = tmp_path_factory.mktemp("verify") / "model"
    tiny_artifact.make(folder, module, [tiny_artifact.EOS], 1)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "model"))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["verify", *map(str, arguments)])


def test_an_artifact_as_it_was_compiled(folder: Path) -> None:
    result = run(folder)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith(": as compiled\n")


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def grow(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"x")


def edit(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "name": "another"}))


DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a bit": ("weights.bin", flip, "weights.bin is not the file that was compiled: its SHA-256"),
    "a byte more": ("weights.bin", grow, "weights.bin is not the file that was compiled: it had"),
    "the manifest": ("manifest.json", edit, "manifest.json is not the file that was compiled"),
    "a file more": ("loader/numpy.py", Path.touch, "loader/numpy.py is not one of its files"),
    "a link": ("also.bin", lambda f: f.symlink_to("weights.bin"), "also.bin is not one of its"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_difference(folder: Path, name: str) -> None:
    file, damage, message = DAMAGE[name]
    (folder / file).parent.mkdir(exist_ok=True)
    damage(folder / file)
    result = run(folder)
    assert result.exit_code == 1
    assert result.stdout.startswith(message)
    assert result.stdout.endswith(": 1 difference\n")


def test_all_differences_at_once(folder: Path) -> None:
    for file, damage, _ in DAMAGE.values():
        (folder / file).parent.mkdir(exist_ok=True)
        damage(folder / file)
    result = run(folder, "--json")
    content = json.loads(result.stdout)
    assert result.exit_code == 1
    assert content["schema"] == "maxtool.verify/1"
    assert len(content["differences"]) == len(DAMAGE) - 1  # one file has two of them


def test_what_is_not_an_artifact(folder: Path) -> None:
    (folder / "weights.bin").unlink()
    assert "'weights.bin' is missing" in run(folder).stderr
    assert run(folder).exit_code == run(folder / "loader").exit_code == 3
