"""Steps that a build runs: those that are not up to date, in their order, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from maxtool.build.building import Building, Limits, Outcome
from maxtool.build.processes import Processes
from maxtool.build.record import Records
from maxtool.build.steps import read_steps, selected
from maxtool.files import content
from maxtool.files.content import MISSING, Contents
from tests.build.pretended import KINDS, LOG, work

FILE = """
[targets."a-{n}"]
kind = "join"
matrix.n = [1, 2, 3]
source = "in-{n}"
output = "a-{n}.txt"

[targets."b-{n}"]
kind = "join"
matrix.n = [1, 2, 3]
source = "@a-{n}"
output = "b-{n}.txt"

[targets."c-{n}"]
kind = "test"
matrix.n = [1, 2, 3]
source = "@b-{n}"

[targets.all]
kind = "join"
source = "@b-1"
with = ["@b-2", "@b-3"]
output = "all.txt"

[targets.time]
kind = "measure"
source = "@all"
output = "time.txt"

[targets.alone]
kind = "join"
source = "in-1"
output = "alone.txt"
"""
NAMES = [f"{letter}-{n}" for letter in "abc" for n in (1, 2, 3)] + ["all", "time", "alone"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x.toml").write_text(FILE)
    for n in (1, 2, 3):
        settle(tmp_path / f"in-{n}", f"text {n}")
    return tmp_path


def settle(file: Path, text: str, seconds: int = 100) -> None:
    """Write a file as if that had been some time ago."""
    file.write_text(text)
    past = file.stat().st_mtime_ns - seconds * 10**9
    os.utime(file, ns=(past, past))


def build(
    folder: Path, *names: str, jobs: int = 2, memory: int = 10**9, **options: bool
) -> dict[str, Outcome]:
    """Return what came of each step."""
    only, rehash = options.pop("only", False), options.pop("rehash", False)
    steps = selected(read_steps(folder / "x.toml", KINDS, {}), names, only=only)
    (folder / "state").mkdir(exist_ok=True)
    contents = Contents(folder, folder / "state" / "hashes", again=rehash)
    records = Records(folder / "state" / "steps")
    building = Building(steps, KINDS, contents, records, Processes(folder, work))
    told: list[Outcome] = []
    outcomes = building.run(Limits(jobs, memory), told.append, **options)
    assert told == outcomes
    return {one.step.name: one for one in outcomes}


def ran(outcomes: dict[str, Outcome]) -> set[str]:
    return {name for name, one in outcomes.items() if one.status == "done"}


def test_a_second_run_does_nothing(folder: Path) -> None:
    assert ran(build(folder)) == {*NAMES}
    assert (folder / "all.txt").read_text().count("+") == 9
    before = (folder / LOG).read_text()
    assert {one.status for one in build(folder).values()} == {"up to date"}
    assert (folder / LOG).read_text() == before


def test_a_folder_named_with_dots_is_known_again(folder: Path) -> None:
    target = '[targets.x]\nkind = "join"\nsource = "in-1"\noutput = "./to//x/"\n'
    (folder / "x.toml").write_text(target)
    (folder / "to").mkdir()
    assert ran(build(folder)) == {"x"}
    assert ran(build(folder)) == set()


def test_one_byte_of_a_source(folder: Path) -> None:
    """Run again what depends on it, and nothing else."""
    build(folder)
    (folder / "in-2").write_text("text X")
    outcomes = build(folder)
    assert ran(outcomes) == {"a-2", "b-2", "c-2", "all", "time"}
    assert outcomes["a-2"].why == "input in-2 changed"
    assert ran(build(folder)) == set()


def test_the_same_content_written_again_is_no_change(folder: Path) -> None:
    build(folder)
    settle(folder / "in-2", "text 2", 50)
    assert ran(build(folder)) == set()


def test_a_change_that_keeps_the_time_of_modification(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same size, time of modification and inode, as tools leave that restore files."""
    monkeypatch.setattr(content, "SETTLED_NS", -1)  # all digests are kept
    build(folder)
    status = (folder / "in-2").stat()
    (folder / "in-2").write_text("text X")
    os.utime(folder / "in-2", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert ran(build(folder, "a-*")) == {"a-2"}


def test_rehash_believes_no_digest_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "SETTLED_NS", -1)
    (tmp_path / "x").write_text("one")
    contents = Contents(tmp_path, tmp_path / "kept")
    digest = contents.digest("x")
    contents.save()
    kept = tmp_path / "kept"
    kept.write_text(kept.read_text().replace(digest, "0" * 64))
    assert Contents(tmp_path, kept).digest("x") == "0" * 64
    assert Contents(tmp_path, kept, again=True).digest("x") == digest


def test_a_source_with_a_time_to_come_is_up_to_date(folder: Path) -> None:
    settle(folder / "in-1", "text 1", -10_000)
    assert ran(build(folder, "a-1")) == {"a-1"}
    assert ran(build(folder, "a-1")) == set()


def test_a_file_that_was_just_written_is_hashed_each_time(tmp_path: Path) -> None:
    contents = Contents(tmp_path, tmp_path / "kept")
    file = tmp_path / "x"
    file.write_text("one")
    first, status = contents.digest("x"), file.stat()
    file.write_text("two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert contents.digest("x") != first
    assert contents.digest("y") == MISSING


@pytest.mark.parametrize("text", ["", "{", "[]", '{"in-1": 3}', '{"in-1": [0, 0, 0, 0]}'])
def test_a_broken_cache_costs_hashing_and_nothing_else(folder: Path, text: str) -> None:
    build(folder)
    (folder / "state" / "hashes").write_text(text)
    assert ran(build(folder)) == set()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "maxtool.build-step/1"}'])
def test_a_broken_record_runs_its_step(folder: Path, text: str) -> None:
    build(folder)
    (folder / "state" / "steps" / "b-1.json").write_text(text)
    assert ran(build(folder)) == {"b-1"}  # to the same bytes: what depends on it is up to date


def test_outputs_that_are_changed_or_gone_are_made_again(folder: Path) -> None:
    build(folder)
    (folder / "a-1.txt").unlink()
    (folder / "b-2.txt").write_text("?")
    outcomes = build(folder)
    assert ran(outcomes) == {"a-1", "b-2"}
    assert outcomes["a-1"].why == "output a-1.txt is missing"
    assert outcomes["b-2"].why == "output b-2.txt changed"


def test_other_options_run_what_has_them(folder: Path) -> None:
    build(folder)
    (folder / "x.toml").write_text(FILE.replace('with = ["@b-2", "@b-3"]', 'with = ["@b-3"]'))
    outcomes = build(folder)
    assert ran(outcomes) == {"all", "time"}
    assert outcomes["all"].why == "its options are others"


def test_a_dry_run_says_what_would_run_and_why(folder: Path) -> None:
    build(folder)
    (folder / "in-3").write_text("text X")
    outcomes = build(folder, dry_run=True)
    would = {name: one.why for name, one in outcomes.items() if one.status == "would run"}
    assert would == {
        "a-3": "input in-3 changed",
        "b-3": "a-3 would run",
        "c-3": "b-3 would run",
        "all": "b-3 would run",
        "time": "all would run",
    }
    assert ran(build(folder, "all")) == {"a-3", "b-3", "all"}


def test_targets_by_name(folder: Path) -> None:
    assert ran(build(folder, "c-2")) == {"a-2", "b-2", "c-2"}
    assert ran(build(folder, "a-*")) == {"a-1", "a-3"}
    assert ran(build(folder, "b-1", only=True)) == {"b-1"}
    assert ran(build(folder, "b-1", force=True)) == {"a-1", "b-1"}


@pytest.mark.parametrize("text", ["broken", "killed"])
def test_after_a_failure(folder: Path, text: str) -> None:
    (folder / "in-1").write_text(text)
    outcomes = build(folder, jobs=1)
    assert outcomes["a-1"].status == "failed"
    assert ran(outcomes) == set()
    outcomes = build(folder, keep_going=True)
    statuses = {name: one.status for name, one in outcomes.items()}
    assert {name for name in NAMES if statuses[name] == "done"} == {
        "a-2",
        "a-3",
        "b-2",
        "b-3",
        "c-2",
        "c-3",
    }
    assert {name for name in NAMES if statuses[name] == "failed"} == {"a-1", "alone"}
    (folder / "in-1").write_text("whole")
    assert ran(build(folder)) == {"a-1", "b-1", "c-1", "all", "time", "alone"}


def beside(folder: Path) -> int:
    """Count the steps that ran at a time, at most."""
    running, most = 0, 0
    for line in (folder / LOG).read_text().splitlines():
        running += 1 if line.startswith("begin") else -1
        most = max(most, running)
    return most


def test_no_more_run_than_cores_and_memory_allow(folder: Path) -> None:
    build(folder, jobs=1)
    assert beside(folder) == 1
    (folder / LOG).unlink()
    build(folder, jobs=8, memory=150, force=True)  # each took 100, as it said
    assert beside(folder) == 1
    (folder / LOG).unlink()
    build(folder, jobs=8, force=True)
    lines = (folder / LOG).read_text().splitlines()
    assert lines.index("end time") == lines.index("begin time") + 1
