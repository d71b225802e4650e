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
    ("folder", "there", "exchange", "kill"),
    ("folder", "there", "renames", "interrupt"),
    ("parts", "there", "exchange", "kill"),
    ("kept-parts", "free", "renames", "kill"),
}
LEAST_LINES = 80


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id="-".join(case), marks=() if case in FAST else pytest.mark.slow)
        for case in product(FORMS, STATES, WAYS, ("kill", "interrupt"))
    ],
)
def test_every_line(tmp_path: Path, case: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tests.files.faults", str(tmp_path), *case]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True)
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    assert result["lines"] > LEAST_LINES
    assert result["kept"] == ([0, 1, 2, 3] if case[0].startswith("kept-") else [])
