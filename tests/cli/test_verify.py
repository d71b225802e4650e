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

TINY = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"


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
    assert result.stdout.endswith(": as written\n")


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def grow(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"x")


def edit(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "name": "another"}))


DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a bit": ("weights.bin", flip, "weights.bin is not the file that was written: its SHA-256"),
    "a byte more": ("weights.bin", grow, "weights.bin is not the file that was written: it had"),
    "the manifest": ("manifest.json", edit, "manifest.json is not the file that was written"),
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


def test_lost_files_are_told_with_all_others(folder: Path) -> None:
    (folder / "weights.bin").unlink()
    grow(folder / "model.so")
    result = run(folder, "--json")
    assert result.exit_code == 1
    lost, grown = sorted(json.loads(result.stdout)["differences"], reverse=True)
    assert lost == "weights.bin is missing"
    assert grown.startswith("model.so is not the file that was written: it had")


def test_what_has_no_record(folder: Path) -> None:
    result = run(folder / "loader")
    assert result.exit_code == 3
    assert "convert --sha256 writes SHA256SUMS" in " ".join(result.stderr.split())


@pytest.mark.parametrize("name", ["../weights.bin", "/etc/hostname"])
def test_no_name_leads_out_of_the_folder(folder: Path, name: str) -> None:
    file = folder / "manifest.json"
    content = json.loads(file.read_text())
    content["files"][name] = {"bytes": 1, "sha256": "0" * 64}
    file.write_text(json.dumps(content))
    assert run(folder).exit_code == 3


def convert(source: Path, output: Path, *options: str) -> None:
    given = [str(source), "-o", str(output), "--sha256", *options]
    assert CliRunner().invoke(app, ["convert", *given]).exit_code == 0


def test_a_converted_file(tmp_path: Path) -> None:
    output = tmp_path / "m.gguf"
    convert(TINY, output)
    for path in (output, tmp_path / "m.gguf.sha256"):
        assert run(path).exit_code == 0
    flip(output)
    result = run(output)
    assert result.exit_code == 1
    assert "m.gguf is not the file that was written" in result.stdout
    output.unlink()
    assert "m.gguf is missing" in run(output).stdout


def test_a_converted_folder(tmp_path: Path) -> None:
    output = tmp_path / "m"
    convert(TINY, output)
    assert run(output).stdout.endswith(": as written\n")
    (output / "more.json").touch()
    grow(output / "config.json")
    result = run(output)
    assert result.exit_code == 1
    assert result.stdout.count("\n") == 3


@pytest.mark.parametrize("line", ["", "no digest  x\n", f"{'0' * 64}  ../x\n", f"{'0' * 64}  /x\n"])
def test_lists_that_are_none(tmp_path: Path, line: str) -> None:
    (tmp_path / "SHA256SUMS").write_text(line)
    result = run(tmp_path)
    assert result.exit_code == 3
    assert "the list of checksums is malformed" in result.stderr
