"""Texts of ``--help``, and completions of shells."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from maxtool.cli import manual
from maxtool.cli.app import COMMANDS, app
from maxtool.dtype import DType
from maxtool.recipe import recipe_names

ROOT = Path(__file__).resolve().parents[2]


def test_every_command_has_its_table() -> None:
    assert manual.EXAMPLES.keys() == manual.ENDINGS.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_and_exit_codes(name: str) -> None:
    done = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= 80
    for example in manual.EXAMPLES[name]:
        assert f"    {example}" in lines
    codes = {*manual.ALWAYS, *manual.ENDINGS[name]}
    assert [f"    {code:>3}  {manual.MEANINGS[code]}" in lines for code in codes] == [True] * len(
        codes
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_understood(name: str) -> None:
    command = typer.main.get_command(app)
    for word in name.split():
        command = command.commands[word]  # type: ignore[attr-defined]
    for example in manual.EXAMPLES[name]:
        program, *words = shlex.split(example.partition(" > ")[0])
        assert [program, *words[: len(name.split())]] == ["maxtool", *name.split()]
        command.make_context(name, words[len(name.split()) :])


def test_exit_codes_are_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert all(f"\n| {code} |" in page for code in manual.MEANINGS)


COMPLETED = {
    "": [
        *("inspect-weights", "convert", "compile", "build", "run", "embed", "serve"),
        *("compare", "imatrix", "verify", "bench", "recipes"),
    ],
    "rec": ["recipes"],
    "recipes ": ["list", "show", "check", "new"],
    "recipes show qwen": [name for name in recipe_names() if name.startswith("qwen")],
    "convert x --recipe gem": [name for name in recipe_names() if name.startswith("gem")],
    "convert --dtype ": [DType.float32.value, DType.float16.value, DType.bfloat16.value],
    "convert --quantize Q8": ["Q8_0"],
    "compile --quantize Q4_K": ["Q4_K", "Q4_K_M", "Q4_K_S"],
    "convert --output-tensor-type BF": ["BF16"],
    "convert --to s": ["safetensors"],
    "convert --cast": ["--cast"],
    "convert --cast '*.norm.weight=bf": ["*.norm.weight=bfloat16"],
    "convert --cast '*.norm.weight": [],
    "convert x --tensor-type '*a=b*=Q8": ["*a=b*=Q8_0"],
    "compile --tensor-type '*=B": ["*=BF16"],
    "compile --po": ["--pooling"],
    "compile --pooling m": ["mean", "max"],
    "compile --kv-dtype f": ["float32", "float16"],
    "compile --target c": ["cpu", "cuda"],
    "run x --device cu": ["cuda"],
    "inspect-weights --st": ["--stats"],
    "convert x": [],  # the shell's own files
}


@pytest.mark.parametrize("typed", COMPLETED)
def test_completion(typed: str) -> None:
    words = f"maxtool {typed}".split(" ")
    settings = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = CliRunner().invoke(
        app, prog_name="maxtool", env={"_MAXTOOL_COMPLETE": "complete_bash", **settings}
    )
    assert done.output.split() == COMPLETED[typed]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_completion_in_bash(tmp_path: Path) -> None:
    """The script that is shown, in the shell itself."""
    program = tmp_path / "maxtool"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m maxtool "$@"\n')
    program.chmod(0o755)
    script = (
        "source <(_MAXTOOL_COMPLETE=source_bash maxtool)\n"
        "COMP_WORDS=(maxtool recipes show smol) COMP_CWORD=3\n"
        "_maxtool_completion maxtool\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "smollm3\n", done.stderr
