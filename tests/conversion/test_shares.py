"""Conversions in shares: in any order and number, the bytes are those of one run."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.conversion import Conversion, Report, Request, convert, engine, prepare, shares
from maxtool.conversion.part_places import folder_of
from maxtool.conversion.shares import Share, check_parts_of, finish, write_share
from maxtool.dtype import DType
from maxtool.errors import (
    ChangedFile,
    MachineLacks,
    MissingFile,
    OutputExists,
    UsageError,
    VerificationFailed,
)
from maxtool.files import check_output
from tests.folders import contents

SOURCE = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"
CUT: dict[str, dict[str, Any]] = {
    "out": {"shard_size": 30_000},
    "out.safetensors": {"shard_size": 30_000},
    "out.gguf": {"split_max_size": 30_000},
}
OPTIONS = ["--split-max-size", "30K", "--dtype", "float16"]


class Stopped(BaseException):
    """The end of a process, of a kind that nothing expects."""


def request(folder: Path, name: str = "out.gguf", source: Path = SOURCE, **more: Any) -> Request:
    return Request(source, folder / name, in_shares=True, **CUT[name], **more)


def share(asked: Request, number: int, of: int) -> Report:
    planned = prepare(asked)
    return write_share(planned, Share(number, of), folder_of(planned))


def finished(asked: Request) -> Report:
    planned = prepare(asked)
    return finish(planned, folder_of(planned))


def hidden(asked: Request) -> Path:
    return asked.output.with_name(f".{asked.output.name}.maxtool-shares")


@pytest.fixture
def to(tmp_path: Path) -> Path:
    (tmp_path / "to").mkdir()
    return tmp_path / "to"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return shutil.copytree(SOURCE, tmp_path / "source")


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("order", [[3, 1, 4, 2], [1, 1], [20, *range(19, 0, -1)]])
def test_the_bytes_are_those_of_one_run(
    tmp_path: Path, to: Path, name: str, order: list[int]
) -> None:
    (tmp_path / "whole").mkdir()
    options: dict[str, Any] = {"dtype": DType.float16, "sha256": True}
    whole = convert(prepare(replace(request(tmp_path / "whole", name, **options), in_shares=False)))
    of = len(set(order))
    for number in order:
        assert not (to / name).exists()
        share(request(to, name, **options), number, of)
    report = finished(request(to, name, **options))
    assert contents(to) == contents(tmp_path / "whole")
    assert (report.nbytes, report.warnings, report.sha256) == (
        *(whole.nbytes, whole.warnings),
        whole.sha256,
    )


@pytest.fixture(scope="module")
def planned() -> Conversion:
    return prepare(request(SOURCE.parent))


@given(files=st.integers(0, 40), of=st.integers(1, 50))
def test_each_file_is_in_one_share(planned: Conversion, files: int, of: int) -> None:
    first = planned.layout.files[0]
    numbered = tuple(replace(first, name=str(number)) for number in range(files))
    every = replace(planned, layout=replace(planned.layout, files=numbered))
    parts = [Share(number, of).part_of(every).layout.files for number in range(1, of + 1)]
    found = [file.name for part in parts for file in part]
    assert sorted(found, key=int) == [str(number) for number in range(files)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_share_needs_the_room_of_its_files(to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(to)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=60_000))
    asked = request(to)
    assert prepare(asked).nbytes > 60_000
    share(asked, 1, 9)
    with pytest.raises(MachineLacks, match="60000 are free"):
        share(asked, 1, 2)


def test_what_was_finished_is_kept(to: Path) -> None:
    asked = request(to)
    assert share(asked, 1, 3).kept == []
    again = share(asked, 1, 3)
    assert len(again.kept) == 3
    assert again.kept == list(again.sha256)
    assert len(share(asked, 1, 1).kept) == 3


def flip(part: Path) -> None:
    raw = bytearray(part.read_bytes())
    raw[-1] ^= 1
    part.write_bytes(raw)


@pytest.mark.parametrize("damage", [flip, lambda part: os.truncate(part, 100)])
def test_a_damaged_part_is_found_and_written_anew(to: Path, damage: Any) -> None:
    asked = request(to)
    for number in (1, 2):
        share(asked, number, 2)
    damage(hidden(asked) / "out-00004-of-00009.gguf")
    with pytest.raises(VerificationFailed, match=r"00004-of-00009.*--shards 2/2"):
        finished(asked)
    assert os.listdir(to) == [hidden(asked).name]  # noqa: PTH208
    report = share(asked, 2, 2)
    assert len(report.kept) == 3
    assert report.warnings == [
        "out-00004-of-00009.gguf was damaged since it was written; it is written anew"
    ]
    assert finished(asked).nbytes == prepare(replace(asked, force=True)).nbytes


@pytest.mark.parametrize("text", ["", "{", "[]", '{"bytes": Infinity}', '{"name": "other"}'])
def test_a_damaged_record_counts_for_nothing(to: Path, text: str) -> None:
    asked = request(to)
    share(asked, 1, 1)
    (hidden(asked) / "out-00004-of-00009.gguf.json").write_text(text)
    with pytest.raises(MissingFile, match="1 of 9 files are not there") as caught:
        finished(asked)
    assert caught.value.problems == ("out-00004-of-00009.gguf: share 1/1",)
    assert len(share(asked, 1, 1).kept) == 8


@pytest.mark.parametrize("text", ["", "7", "[[1, 2, 3]]"])
def test_a_damaged_plan(to: Path, text: str) -> None:
    asked = request(to)
    share(asked, 1, 2)
    (hidden(asked) / "plan.json").write_text(text)
    with pytest.raises(UsageError, match=r"plan of the shares is damaged.*rm -r"):
        share(asked, 2, 2)


def test_missing_shares_are_named(to: Path) -> None:
    asked = request(to)
    with pytest.raises(MissingFile, match="no share of this output"):
        finished(asked)
    share(asked, 2, 4)
    share(asked, 3, 4)
    with pytest.raises(MissingFile, match="5 of 9 files are not there") as caught:
        check_parts_of(prepare(asked), folder_of(prepare(asked)))
    assert caught.value.problems[:2] == (
        "out-00001-of-00009.gguf: share 1/4",
        "out-00004-of-00009.gguf: share 4/4",
    )
    share(asked, 1, 9)  # of another number: which share lacks depends on whom one asks
    with pytest.raises(MissingFile) as caught:
        finished(asked)
    assert caught.value.problems[0] == "out-00004-of-00009.gguf"


def test_other_options_and_sources_are_refused(to: Path, source: Path) -> None:
    asked = request(to, source=source)
    share(asked, 1, 2)
    with pytest.raises(UsageError, match="made of something else") as caught:
        share(replace(asked, dtype=DType.float16), 2, 2)
    assert "--dtype: not there then, float16 now" in caught.value.problems
    with pytest.raises(UsageError, match="made of something else"):
        share(replace(asked, allow_nonfinite=True), 2, 2)
    config = source / "config.json"
    config.write_text(config.read_text() + " ")
    for step in (lambda: share(asked, 2, 2), lambda: finished(asked)):
        with pytest.raises(UsageError, match="made of something else") as caught:
            step()
        assert caught.value.problems == ("the source's config.json: not the same",)


def test_a_part_of_another_plan_counts_for_nothing(to: Path) -> None:
    """A slow share that began before the folder was removed, and another plan begun."""
    asked = request(to, dtype=DType.bfloat16)
    slow = prepare(asked)
    other = replace(asked, dtype=DType.float16)
    share(other, 1, 1)
    folder = folder_of(slow)
    shares._write(slow, Share(1, 9), folder, slow.layout.files[0], Report(to, 0), None)
    with pytest.raises(MissingFile) as caught:
        finished(other)
    assert caught.value.problems == ("out-00001-of-00004.gguf: share 1/1",)


def test_a_source_that_changes_meanwhile(
    to: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, write = request(to, source=source), engine._write

    def changing(*arguments: Any, **options: Any) -> Any:
        digest = write(*arguments, **options)
        os.utime(source / "model.safetensors")
        return digest

    monkeypatch.setattr(engine, "_write", changing)
    with pytest.raises(ChangedFile):
        share(asked, 1, 1)
    assert os.listdir(hidden(asked)) == ["plan.json"]  # noqa: PTH208


def test_a_share_that_is_killed_costs_its_file(to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, write = request(to), engine._write

    def stopping(*arguments: Any, **options: Any) -> Any:
        if arguments[2].name.startswith("out-00003"):
            arguments[2].write_bytes(b"half")
            raise Stopped
        return write(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_write", stopping)
        with pytest.raises(Stopped):
            share(asked, 1, 1)
    assert shares.kept_files(prepare(asked)) == 2
    check_output(asked.output, force=False)  # what clears up behind the dead leaves the parts
    assert len(share(asked, 1, 1).kept) == 2
    finished(asked)
    assert len(os.listdir(to)) == 9  # noqa: PTH208


def test_finishing_that_is_killed_is_done_again(to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(to, "out")
    share(asked, 1, 1)

    def stopping(*_: Any, **__: Any) -> Any:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_check_replaceable", stopping)
        with pytest.raises(Stopped):
            planned = engine._prepared(asked)
            finish(planned, folder_of(planned))
    with monkeypatch.context() as patch:
        patch.setattr("maxtool.files.staging._put", stopping)
        with pytest.raises(Stopped):
            finished(asked)
    assert not asked.output.exists()
    finished(asked)
    assert os.listdir(to) == ["out"]  # noqa: PTH208


def test_without_links_parts_are_copied(to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError

    asked = request(to)
    share(asked, 1, 1)
    monkeypatch.setattr(Path, "hardlink_to", refused)
    assert finished(asked).kept == [f"out-{number:05}-of-00009.gguf" for number in range(1, 10)]


def test_two_processes_with_one_share(to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, write, together = request(to), engine._write, Barrier(2)

    def meeting(*arguments: Any, **options: Any) -> Any:
        together.wait(10)
        return write(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_write", meeting)
        with ThreadPoolExecutor(2) as pool:
            reports = list(pool.map(lambda _: share(asked, 1, 1), range(2)))
    assert reports[0].sha256 == reports[1].sha256
    assert len(finished(asked).sha256) == 0
    assert not hidden(asked).exists()


def test_a_share_behind_the_finishing_step(to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, write = request(to), engine._write
    late = prepare(asked)

    def slow(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(engine, "_write", write)
        share(asked, 1, 1)
        finished(asked)
        return write(*arguments, **options)

    monkeypatch.setattr(engine, "_write", slow)
    with pytest.raises(OutputExists, match="finished"):
        write_share(late, Share(1, 9), folder_of(late))
    with pytest.raises(OutputExists):
        share(asked, 1, 9)


def test_what_was_read_back_is_not_read_again(to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(engine, "read_back", lambda path, *_: read.append(path.name[4:9]))
    asked = request(to)
    verified = replace(asked, verify=True)
    share(verified, 1, 3)
    share(asked, 2, 3)
    share(asked, 3, 3)
    share(verified, 3, 3)  # which had not been
    finished(verified)
    assert read == ["00001", "00004", "00007", "00003", "00006", "00009", "00002", "00005", "00008"]


# --- the command ---------------------------------------------------------------------------------


def run(to: Path, *arguments: str) -> Result:
    out = str(to / "out.gguf")
    return CliRunner().invoke(app, ["convert", str(SOURCE), "-o", out, *OPTIONS, *arguments])


def test_the_command(to: Path) -> None:
    asked = ["--quantize", "Q8_0", "--shards"]
    command = ["convert", str(SOURCE), "-o", str(to / "out.gguf"), "--split-max-size", "30K"]
    first = CliRunner().invoke(app, [*command, *asked, "1/2", "--json"])
    report = json.loads(first.stdout)
    assert (first.exit_code, report["share"]) == (0, "1/2")
    assert [*report["files"]] == [*report["sha256"]]
    assert {tensor["name"] for tensor in report["tensors"]} < {
        spec.name for spec in prepare(request(to)).specs
    }
    second = CliRunner().invoke(app, [*command, *asked, "2/2"])
    assert "wrote share 2/2 of" in second.stdout
    ended = CliRunner().invoke(app, [*command, *asked, "finish", "--json"])
    report = json.loads(ended.stdout)
    assert (ended.exit_code, report["share"], report["kept"]) == (0, "finish", [*report["files"]])


def test_the_command_says_what_lacks(to: Path) -> None:
    assert run(to, "--shards", "1/5").exit_code == 0
    planned = run(to, "--shards", "2/5", "--dry-run")
    assert "would write share 2/5" in planned.stdout
    for more in ([], ["--dry-run"]):
        result = run(to, "--shards", "finish", *more)
        assert result.exit_code == 3
        assert "out-00002-of-00004.gguf: share 2/5" in result.stderr
    empty = run(to, "--shards", "9/9")
    assert (empty.exit_code, "fewer files than shares" in empty.stdout) == (0, True)


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "-1/4", "1/0", "1/4/4", "a/b", "Finish"])
def test_what_is_no_share(to: Path, text: str) -> None:
    result = run(to, "--shards", text)
    assert (result.exit_code, "such as 3/16, or finish" in result.stderr) == (2, True)
    assert ("--array=1-4" in result.stderr) == (text == "0/4")


def test_one_file_has_no_shares(to: Path) -> None:
    command = ["convert", str(SOURCE), "-o", str(to / "out.gguf"), "--shards", "1/2"]
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, "the output is one file" in result.stderr) == (2, True)
