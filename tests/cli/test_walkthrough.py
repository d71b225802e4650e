"""The walk-through of adding a model, followed word for word."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from maxtool.recipe import load_recipe

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "adding-a-model.md"
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {"maxtool": ["-m", "maxtool"], "python": []}
# Before the output of a command; a line of it alone stands for any lines, in a line for any text.
PROMPT, ANYTHING = "$ ", "…"


def run(command: str, folder: Path) -> str:
    """Return the output of a command, on both streams."""
    name, *words = shlex.split(command)
    places = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(places),
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        [sys.executable, *PROGRAMS[name], *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout


def as_expected(shown: str, expected: list[str]) -> bool:
    lines = [r"(?:.*\n)*?" if line == ANYTHING else _line(line) + r"[ ]*\n" for line in expected]
    return re.fullmatch(r"(?:\s*\n)?" + "".join(lines) + r"(?:.*\n)*", shown) is not None


def _line(text: str) -> str:
    return ".*".join(map(re.escape, text.split(ANYTHING)))


def follow(kind: str, rest: str, text: str, folder: Path) -> int:
    """Run the commands of one block; returns their number."""
    if kind == "console":
        commands = text.split(f"\n{PROMPT}")
        for part in commands:
            command, *expected = part.removeprefix(PROMPT).rstrip("\n").split("\n")
            shown = run(command, folder)
            assert as_expected(shown, [line for line in expected if line]), f"{command}\n{shown}"
        return len(commands)
    if rest.strip():
        name, _, more = rest.strip().partition(" ")
        with (folder / name).open("a" if more == "+" else "w") as file:
            file.write(("\n" if more == "+" else "") + text)
    return 0


@pytest.mark.slow
def test_the_walk_through(tmp_path: Path) -> None:
    ran = sum(follow(*result, tmp_path) for result in BLOCK.findall(PAGE.read_text()))
    assert ran == 9
    recipe = tmp_path / "fable.toml"
    assert load_recipe(str(recipe)).name == "fable"
    assert len(recipe.read_text().splitlines()) <= 80


def test_what_is_not_as_expected_is_seen() -> None:
    assert as_expected("\na 1\nb\nc\n", ["a …", "…", "c"])
    assert as_expected("a\nmore\n", ["a"])
    assert not as_expected("a\nb\n", ["b", "a"])
    assert not as_expected("ab\n", ["a"])
    assert not as_expected("", ["a"])
