"""The writing of an output, ended at every line of the code that does it.

Whatever the line, the output is the old one or the new one, whole, and the next run finds nothing
hidden, but for finished parts in a journal, which it goes on with. Where the system cannot exchange
names, and for outputs of several files, a kill may hide the old output until that run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORMS = ("file", "folder", "parts", "kept-folder", "kept-parts")
STATES, WAYS = ("there", "free"), ("exchange", "renames")
FAST = {
    ("folder", "kill", "there", "exchange"),
    ("folder", "interrupt", "there", "renames"),
    ("parts", "kill", "there", "exchange"),
    ("kept-parts", "kill", "free", "renames"),
}
LEAST_LINES = 80


def marks(place: int, case: tuple[str, ...]) -> tuple[pytest.MarkDecorator, ...]:
    """Each takes ten seconds: half of those that are not fast run with ``--everything``."""
    if case in FAST:
        return ()
    explored = place.bit_count() % 2  # all pairs of form, end, state and way remain
    return (pytest.mark.slow, pytest.mark.explored) if explored else (pytest.mark.slow,)


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id="-".join(case), marks=marks(place, case))
        for place, case in enumerate(product(FORMS, ("kill", "interrupt"), STATES, WAYS))
    ],
)
def test_every_line(tmp_path: Path, case: tuple[str, ...]) -> None:
    form, end, state, way = case
    command = [sys.executable, "-m", "tests.files.faults", str(tmp_path), form, state, way, end]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True)
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    assert result["lines"] > LEAST_LINES
    assert result["kept"] == ([0, 1, 2, 3] if case[0].startswith("kept-") else [])
