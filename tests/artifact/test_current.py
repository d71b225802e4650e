"""``compile --if-changed``: the same artifact is not made again, another one is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from tests.artifact.measure import Compile

TARGET = "cpu:x86-64-v2"


@pytest.fixture
def there(compiled: Compile, data: Path, tmp_path: Path) -> Path:
    """A source, and an artifact of it beside it."""
    shutil.copytree(data / "tiny-llama", tmp_path / "source")
    shutil.copytree(compiled(data / "tiny-llama", target=TARGET), tmp_path / "out")
    return tmp_path


def compiling(there: Path, *options: str) -> Result:
    given = [str(there / "source"), "-o", str(there / "out"), "--if-changed", "--target", TARGET]
    return CliRunner().invoke(app, ["compile", *given, *options])


def is_left(there: Path, *options: str) -> bool:
    """Return whether nothing was written, as it says."""
    before = (there / "out").stat().st_ino
    done = compiling(there, "--json", *options)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)["up_to_date"]
    assert said is ((there / "out").stat().st_ino == before)
    return bool(said)


def test_the_same_is_left_as_it_is(there: Path) -> None:
    assert is_left(there)
    assert compiling(there).stdout.endswith("out: up to date\n")
    assert not is_left(there, "--context", "32")
    assert is_left(there, "--context", "32")


@pytest.mark.parametrize("name", ["source/model.safetensors", "out/weights.bin"])
def test_a_byte_of_what_it_is_made_from_or_made_of(there: Path, name: str) -> None:
    file = there / name
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    assert not is_left(there)
    assert is_left(there)


def test_an_output_that_is_not_there(there: Path) -> None:
    shutil.rmtree(there / "out")
    done = compiling(there)
    assert done.exit_code == 0, done.output
    assert (there / "out" / "run.py").is_file()
