"""A factory whose parameters are not the fields of its request is an error of types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What each line should be is in its comment.
PROGRAM = """
from typing import Any

from maxtool.compiler.kernels.requests import LayerNormRows, TopRows, row, row_with


def top(dtype: str, count: int) -> Any: ...
def top_with_default(count: int, dtype: str = "float32", stable: bool = False) -> Any: ...
def top_named_otherwise(dtype: str, k: int) -> Any: ...
def top_typed_otherwise(dtype: str, count: str) -> Any: ...
def top_without_an_option(dtype: str) -> Any: ...
def top_with_more(dtype: str, count: int, stable: bool) -> Any: ...
def norm(lanes: int, dtype: str, weight: str, eps: float, out: str) -> Any: ...


row(TopRows)(top)  # right
row(TopRows)(top_with_default)  # right
row(TopRows)(top_named_otherwise)  # wrong
row(TopRows)(top_typed_otherwise)  # wrong
row(TopRows)(top_without_an_option)  # wrong
row(TopRows)(top_with_more)  # wrong
row(LayerNormRows)(norm)  # wrong
row_with(int, LayerNormRows)(norm)  # right
row_with(str, LayerNormRows)(norm)  # wrong
TopRows(dtype="float32", count=3)  # right
TopRows(dtype="float32")  # wrong
TopRows(dtype="float32", count="3")  # wrong
TopRows(dtype="float32", number=3)  # wrong
"""


@pytest.mark.slow
def test_what_mypy_says_of_factories_and_requests(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *config, "--no-error-summary", str(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    said = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    lines = PROGRAM.splitlines()
    assert said == {at for at, line in enumerate(lines, 1) if "# wrong" in line}, done.stdout
