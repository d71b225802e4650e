"""The lines that a run of the tests ends with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.closing import by_folder, skipped


def report(nodeid: str, seconds: float, why: Any = None) -> pytest.TestReport:
    outcome = "passed" if why is None else "skipped"
    return pytest.TestReport(nodeid, ("", 0, ""), {}, outcome, why, "call", duration=seconds)  # type: ignore[arg-type]


def test_seconds_are_those_of_rooms() -> None:
    result = by_folder(
        [
            report("tests/graph/test_a.py::test_x[tests/b::c]", 1.5),
            report("tests/graph/deep/test_b.py::test_y", 2.5),
            report("tests/test_files.py::test_z", 1),
        ]
    )
    assert result == {"tests/graph": 4, "tests/test_files.py": 1}


def test_skips_are_counted_by_their_reason() -> None:
    reasons = [
        ("a.py", 1, "Skipped: could not import 'torch': No module named 'torch'"),
        ("b.py", 2, "Skipped: could not import 'torch': No module named 'torch'"),
        ("c.py", 3, "Skipped: the reference checkpoints are missing: no folder /x"),
    ]
    line = skipped([report("tests/a.py::test", 0, why) for why in reasons])
    assert line == "3 skipped: 2 no package torch; 1 the reference checkpoints are missing"
