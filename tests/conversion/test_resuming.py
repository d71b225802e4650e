"""Conversions that are interrupted, and gone on with: the bytes are those of one run.

Every line of the code that keeps finished parts is ended in ``tests/files/test_faults.py``.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.conversion import Report, Request, convert, engine, prepare
from maxtool.dtype import DType
from maxtool.errors import ChangedFile, UsageError
from maxtool.files import check_output, kept_parts, sha256
from tests.folders import contents

SOURCE = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"
CUT: dict[str, dict[str, Any]] = {
    "out": {"shard_size": 30_000},
    "out.safetensors": {"shard_size": 30_000},
    "out.gguf": {"split_max_size": 30_000},
}
KEPT = 3


class Stopped(BaseException):
    """The end of a run, of a kind that nothing expects."""


def request(folder: Path, name: str = "out.gguf", source: Path = SOURCE, **more: Any) -> Request:
    return Request(source, folder / name, resume=True, **CUT[name], **more)


def interrupted(
    asked: Request, monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None
) -> None:
    """Run a conversion that stops in the middle of the file behind ``KEPT`` others."""
    write, count = engine._write, 0

    def stopping(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count > KEPT:
            arguments[2].write_bytes(b"half")
            raise error or Stopped
        return write(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_write", stopping)
        with pytest.raises(type(error) if error else Stopped):
            run(asked)


def run(asked: Request) -> Report:
    return convert(prepare(asked))


@pytest.fixture
def to(tmp_path: Path) -> Path:
    (tmp_path / "to").mkdir()
    return tmp_path / "to"


@pytest.mark.parametrize("name", CUT)
def test_the_bytes_are_those_of_one_run(
    tmp_path: Path, to: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "whole").mkdir()
    whole = run(replace(request(tmp_path / "whole", name), resume=False))
    interrupted(request(to, name), monkeypatch)
    assert not (to / name).exists()
    assert len(os.listdir(to)) == 1  # noqa: PTH208
    report = run(request(to, name, verify=True))
    assert len(report.kept) == KEPT
    assert contents(to) == contents(tmp_path / "whole")
    assert (report.nbytes, report.warnings) == (whole.nbytes, whole.warnings)


def _cut(part: Path) -> None:
    os.truncate(part, 100)


def _flip(part: Path) -> None:
    raw = bytearray(part.read_bytes())
    raw[-1] ^= 1
    part.write_bytes(raw)


def _infinite(journal: Path) -> None:
    journal.write_text(journal.read_text().replace('"bytes": ', '"bytes": Infinity, "was": '))


def _without_remarks(journal: Path) -> None:
    first, *lines = map(json.loads, journal.read_text().splitlines())
    said = [first, *({**line, "remarks": []} for line in lines)]
    journal.write_text("".join(json.dumps(line) + "\n" for line in said))


def _without_parts(journal: Path) -> None:
    shutil.rmtree(journal.with_name("new"))


@pytest.mark.parametrize(
    ("damage", "kept"), [(_infinite, 0), (_without_remarks, KEPT), (_without_parts, 0)]
)
def test_a_damaged_journal(
    to: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], kept: int
) -> None:
    interrupted(request(to), monkeypatch)
    damage(next(to.glob(".out*/journal")))
    assert len(run(request(to)).kept) == kept
    assert all(name.startswith("out-") for name in os.listdir(to))  # noqa: PTH208


@pytest.mark.parametrize("damage", [_cut, _flip, Path.unlink])
def test_a_damaged_part_is_written_anew(
    to: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    interrupted(request(to), monkeypatch)
    damage(next(to.glob(".out*/new/*-00002-*")))
    told: list[int] = []
    planned = prepare(request(to, sha256=True))
    report = convert(planned, told.append)
    assert len(report.kept) == KEPT - 1
    assert "00002" in report.warnings[0]
    kept = contents(to)
    run(replace(request(to), resume=False, force=True))
    assert contents(to).items() <= kept.items()


def test_a_journal_that_is_cut_off_lists_what_it_still_does(
    to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(request(to), monkeypatch)
    journal = next(to.glob(".out*/journal"))
    journal.write_bytes(journal.read_bytes()[:-10])
    interrupted(request(to), monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    assert len(kept_parts(to / "out.gguf")) == 2 * KEPT - 1
    assert len(run(request(to)).kept) == 2 * KEPT - 1


def test_what_is_made_of_something_else_is_refused(
    tmp_path: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name what differs, and keep what there is for the command that it was made by."""
    source = shutil.copytree(SOURCE, tmp_path / "source")
    interrupted(request(to, source=source), monkeypatch)
    with pytest.raises(UsageError, match="--dtype: not there then, float16 now") as caught:
        run(request(to, source=source, dtype=DType.float16))
    assert "without --resume" in str(caught.value.hint)
    before = (source / "model.safetensors").read_bytes()
    _flip(source / "model.safetensors")
    with pytest.raises(UsageError, match=r"the source's model\.safetensors: not the same"):
        run(request(to, source=source))
    (source / "model.safetensors").write_bytes(before)
    moved = source.rename(tmp_path / "moved")
    assert len(run(request(to, source=moved)).kept) == KEPT


def test_without_the_option_all_is_made_anew(to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(request(to), monkeypatch)
    check_output(to / "another", force=False)
    run(Request(SOURCE, to / "other.gguf"))
    assert len(kept_parts(to / "out.gguf")) == KEPT
    assert run(replace(request(to), resume=False)).kept == []
    assert not list(to.glob(".*"))


def test_a_source_that_changes_meanwhile_leaves_nothing(
    to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(request(to), monkeypatch, ChangedFile("it was changed"))
    assert contents(to) == {}


def test_a_second_process_is_refused(to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = engine._write

    def meeting(*arguments: Any, **options: Any) -> Any:
        with pytest.raises(UsageError, match="another process"):
            run(request(to))
        monkeypatch.setattr(engine, "_write", write)
        return write(*arguments, **options)

    monkeypatch.setattr(engine, "_write", meeting)
    assert run(request(to)).kept == []
    assert not list(to.glob(".*"))


def test_the_command_says_what_is_kept(to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(request(to), monkeypatch)
    options = ["--split-max-size", "30K", "--resume", "--json"]
    command = ["convert", str(SOURCE), "-o", str(to / "out.gguf"), *options]

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_write", full)
        failed = CliRunner().invoke(app, command)
    assert failed.exit_code == 6
    assert f"{KEPT} of 9 files are kept" in failed.stderr
    done = CliRunner().invoke(app, command)
    report = json.loads(done.stdout)
    assert len(report["kept"]) == KEPT
    assert report["sha256"] == {name: sha256(to / name) for name in report["files"]}


def test_one_file_has_nothing_to_keep(to: Path) -> None:
    planned = prepare(Request(SOURCE, to / "one.gguf", resume=True))
    assert "one file" in planned.notes[-1]
    assert convert(planned).kept == []
