"""Options whose value may be left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.cli.optional_values import with_values


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--check", "--check=graph"),
        ("--check graph", "--check=graph"),
        ("--check transformers -o out", "--check=transformers -o out"),
        ("--check source -o out", "--check=graph source -o out"),
        ("--check tranformers -o out", "--check=tranformers -o out"),
        ("--check ./graph", "--check=graph ./graph"),
        ("--check -o out", "--check=graph -o out"),
        ("--check=transformers source", "--check=transformers source"),
        ("source --check -- --check graph", "source --check=graph -- --check graph"),
    ],
)
def test_a_value_is_taken_if_it_is_one(given: str, meant: str) -> None:
    assert with_values(given.split()) == meant.split()


def test_another_value_is_refused() -> None:
    result = CliRunner().invoke(app, ["compile", "source", "-o", "out", "--check=numpy"])
    assert result.exit_code == 2
    assert "--check takes graph, transformers or onnxruntime, not 'numpy'" in result.stderr


def test_a_mistyped_value_is_told_of() -> None:
    result = CliRunner().invoke(app, ["compile", "source", "-o", "out", "--check", "tranformers"])
    assert result.exit_code == 2
    assert "--check takes graph, transformers or onnxruntime, not 'tranformers'" in result.stderr
    assert "did you mean 'transformers'?" in result.stderr


def test_a_file_of_such_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graphs").mkdir()
    assert with_values(["--check", "graphs"]) == ["--check=graph", "graphs"]


def test_shells_complete_the_values() -> None:
    asked = {
        "_MAXTOOL_COMPLETE": "complete_bash",
        "COMP_WORDS": "maxtool compile source --check ",
        "COMP_CWORD": "4",
    }
    command = [sys.executable, "-c", "from maxtool.cli.app import app; app(prog_name='maxtool')"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True)
    assert done.stdout.split() == ["graph", "transformers", "onnxruntime"]
