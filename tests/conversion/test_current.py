"""Checks for ``convert --if-changed``: the same output is not made again, another one is."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.conversion import resuming
from maxtool.files import content, sha256
from maxtool.recipe.load import files_of

SOURCE = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"
CUT = "--split-max-size=30000"
FIRST = "out-00001-of-"


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MAXTOOL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(content, "SETTLED_NS", 0)
    shutil.copytree(SOURCE, tmp_path / "source")
    return tmp_path


def converting(there: Path, *options: str, output: str = "out.gguf") -> Result:
    given = [str(there / "source"), "-o", str(there / output), "--if-changed"]
    return CliRunner().invoke(app, ["convert", *given, *options])


def is_left(there: Path, *options: str, output: str = "out.gguf") -> bool:
    """Return whether nothing was written, as it says."""
    before = inodes(there)
    done = converting(there, "--json", *options, output=output)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)["up_to_date"]
    assert not said or inodes(there) == before
    return bool(said)


def inodes(there: Path) -> set[int]:
    return {path.stat().st_ino for path in there.glob("out*")}


def is_made_again(there: Path, *options: str, output: str = "out.gguf") -> bool:
    before = inodes(there)
    return not is_left(there, *options, output=output) and inodes(there) != before


@pytest.mark.parametrize(
    ("output", "options"),
    [
        ("out.gguf", ()),
        ("out.gguf", ("--quantize", "Q8_0")),
        ("out.gguf", (CUT, "--sha256")),
        ("out", ("--shard-size=30000", "--sha256")),
        ("out.safetensors", ("--dtype", "float16")),
        ("out.npz", ()),
    ],
)
def test_the_same_is_left_as_it_is(there: Path, output: str, options: tuple[str, ...]) -> None:
    assert is_made_again(there, *options, output=output)
    assert is_left(there, *options, output=output)
    said = converting(there, *options, output=output)
    assert said.stdout == f"{there / output}: up to date\n"
    written = sorted(path for path in there.glob("out*") if path.is_file())
    files = written or sorted(path for path in (there / output).iterdir() if path.is_file())
    os.truncate(files[-1], 1)
    assert is_made_again(there, *options, output=output)
    assert is_left(there, *options, output=output)


@pytest.mark.parametrize(
    "other", [("--dtype=float16",), ("--name=x",), ("--set=a=string:x",), ("--allow-nonfinite",)]
)
def test_other_options(there: Path, other: tuple[str, ...]) -> None:
    assert is_made_again(there)
    assert is_made_again(there, *other)
    assert is_left(there, *other)
    assert is_made_again(there)


@pytest.mark.parametrize("name", ["source/model.safetensors", "source/config.json", "out.gguf"])
def test_a_byte_of_what_it_is_made_from_or_made_of(there: Path, name: str) -> None:
    assert is_made_again(there)
    file = there / name
    found = bytearray(file.read_bytes())
    if name.endswith(".json"):
        found += b"\n"
    else:
        found[-3] ^= 1
    file.write_bytes(found)
    assert is_made_again(there)
    assert is_left(there)


def test_a_recipe_that_the_recipe_extends(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = there / "base.toml"
    base.write_text("")
    monkeypatch.setattr(resuming, "files_of", lambda recipe: (*files_of(recipe), base))
    assert is_made_again(there)
    assert is_left(there)
    base.write_text("# changed")
    assert is_made_again(there)


@pytest.mark.parametrize(
    ("output", "options", "stranger"),
    [
        ("out", ("--shard-size=30000",), "out/model.safetensors"),
        ("out.gguf", (CUT,), "out-00001-of-00002.gguf"),
    ],
)
def test_a_file_that_does_not_belong_to_it(
    there: Path, output: str, options: tuple[str, ...], stranger: str
) -> None:
    """Readers would take it for a part, or for all of it."""
    assert is_made_again(there, *options, output=output)
    (there / stranger).write_bytes(b"x")
    assert is_made_again(there, *options, output=output)
    assert is_left(there, *options, output=output)


def test_a_file_that_is_lost(there: Path) -> None:
    assert is_made_again(there, CUT)
    next(there.glob(f"{FIRST}*")).unlink()
    assert is_made_again(there, CUT)
    assert is_left(there, CUT)


def test_shares_of_an_output(there: Path) -> None:
    for share in ("1/2", "2/2", "finish"):
        assert not is_left(there, CUT, "--shards", share)
    for share in ("1/2", "2/2", "finish"):
        assert is_left(there, CUT, "--shards", share)
    next(there.glob(f"{FIRST}*")).unlink()
    assert not is_left(there, CUT, "--shards", "1/2")


def test_a_plan_says_that_nothing_would_be_done(there: Path) -> None:
    assert "would write" in converting(there, "--dry-run").stdout
    assert converting(there).exit_code == 0
    assert converting(there, "--dry-run").stdout.endswith(": up to date\n")


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"written": 3}', "\0", "[" * 100_000])
def test_a_damaged_note_counts_for_nothing(there: Path, damage: str) -> None:
    assert is_made_again(there)
    (note,) = (there / "cache" / "maxtool" / "converted").glob("*.json")
    note.write_text(damage)
    assert is_made_again(there)
    assert is_left(there)


def test_without_a_place_for_a_cache(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert each time, and say why."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    for _ in range(2):
        done = converting(there)
        assert done.exit_code == 0
        assert "made again: Could not determine home" in " ".join(done.stderr.split())


def test_what_was_hashed_once_is_not_hashed_again(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were too new to be known when they were noted are known from the next run on."""
    monkeypatch.setattr(content, "SETTLED_NS", 1 << 62)
    assert is_made_again(there)
    monkeypatch.setattr(content, "SETTLED_NS", 0)
    assert is_left(there)
    hashed: list[Path] = []
    monkeypatch.setattr(content, "sha256", lambda path, _: hashed.append(path) or sha256(path))
    assert is_left(there)
    assert not hashed
