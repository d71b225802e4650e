"""Versions and machines that make a record stale."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from maxtool.build.record import Record, Records, made_with
from maxtool.build.step import Step
from maxtool.files.content import Contents

STEP = Step("x", "compile", ("compile", "s", "--target=cpu:x86-64-v3"), "s", None, ())


def test_another_version_makes_it_stale(tmp_path: Path) -> None:
    contents = Contents(tmp_path, tmp_path / "kept")
    record = Record(STEP.argv, None, made_with(STEP), {})
    assert record.stale(STEP, contents) is None
    older = replace(record, made_with={**record.made_with, "numpy": "1.0"})
    assert older.stale(STEP, contents) == "another numpy"


@pytest.mark.parametrize(
    ("kind", "words", "depends"),
    [
        ("compile", (), True),
        ("compile", ("--target=cpu",), True),
        ("compile", ("--target=cpu:x86-64-v3",), False),
        ("convert", (), False),
        ("bench", (), True),
    ],
)
def test_what_is_for_this_machine_depends_on_it(
    kind: str, words: tuple[str, ...], depends: bool
) -> None:
    step = replace(STEP, kind=kind, argv=(kind, "s", *words))
    assert ("machine" in made_with(step)) is depends


@pytest.mark.parametrize("key", [one.name for one in fields(Record)])
def test_a_record_of_other_types_is_none(tmp_path: Path, key: str) -> None:
    records = Records(tmp_path)
    records.write("x", Record(["compile"], "o", {}, {}))
    file = tmp_path / "x.json"
    whole = json.loads(file.read_text())
    for wrong in (True, ["x"] if isinstance(whole[key], str | dict) else {"x": "y"}):
        file.write_text(json.dumps({**whole, key: wrong}))
        assert records.read("x") is None


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = Records(tmp_path / "steps")
    record = Record(["compile"], "o", {"a": "1"}, {"i": "2"}, ["n"], {"o": "3"}, 4, 0.5, 6)
    records.write("x", record)
    assert records.read("x") == record
    assert records.read("y") is None
