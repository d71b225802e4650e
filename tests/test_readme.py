"""Every command of README.md runs and prints what README.md says; docs/cli.md misses no option.

A block of commands is followed by what it prints. A block marked ``text`` is compared exactly, one
marked ``text varies`` (speeds, addresses of a machine) with every number masked and lines joined.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from maxtool.cli.app import app
from maxtool.recipe import recipe_names

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLI = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")

LANGUAGES = {"sh": ("sh", "-e", "-c"), "python": (sys.executable, "-c")}
SHIMS = {"maxtool": "-m maxtool", "python": ""}
# `make demo` has a test of its own below; the others would run these tests, download or take hours.
NOT_RUN = re.compile(r"make (demo|test|test-all|lint|format|bench)\b|pip install|\.venv/bin/")
SLOW = {
    "Look at a checkpoint",
    "Convert",
    "Compile and run",
    "Choose a quantization",
    "Compile a module of your own",
}
COMMON = {"--json", "--quiet", "-q", "--verbose", "-v", "--no-color", "--help", "-h"}
MASKS = (
    (r"for [\w-]+, matrices", "for CPU, matrices"),
    (r"[\w-]+ \(((amx|avx|bf16|dotprod|f16c|fma|i8mm|neon)[\w-]* ?)+\)", "CPU (features)"),
    (r"^.*?, CPU \(features\)", "NAME, CPU (features)"),
    (r"(?<!\S)[+-](?=\d)", ""),
    (r"\d[\d.,]*(e[+-]?\d+)?", "#"),
    (r"# (s|ms|µs|threads?)\b", "# units"),
)


class Example(NamedTuple):
    """Code, and what it prints if README.md says so."""

    command: tuple[str, ...]
    code: str
    expected: str | None
    varies: bool


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def examples(section: str) -> Iterator[Example]:
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    for (info, code), (after, printed) in pairwise([*fences, ("", "")]):
        if info in LANGUAGES and not NOT_RUN.match(code):
            said = printed if after.startswith("text") else None
            yield Example(LANGUAGES[info], code, said, after == "text varies")


EXAMPLES = {
    title: result for title, text in sections(README).items() if (result := [*examples(text)])
}


# What long work says every ten seconds where there is no terminal.
PROGRESS = re.compile(r"^\[\d+/\d+\] .*\n", re.MULTILINE)


def masked(text: str) -> list[str]:
    text = PROGRESS.sub("", text)
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, " ".join(text.split()))
    return text.split()


def assert_prints(example: Example, printed: str) -> None:
    if example.varies:
        assert masked(printed) == masked(example.expected or "")
    elif example.expected is not None:
        assert printed.splitlines() == example.expected.splitlines()


@pytest.fixture
def shims(tmp_path: Path) -> Path:
    """A folder with the programs that an activated virtual environment would have."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, arguments in SHIMS.items():
        shim = folder / name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        shim.chmod(0o755)
    return folder


@pytest.fixture
def environment(shims: Path) -> Mapping[str, str]:
    path = os.pathsep.join([str(shims), os.environ["PATH"]])
    known = {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}
    return {**os.environ, **known, "PYTHONWARNINGS": "error"}


def run(command: list[str], **options: Any) -> str:
    """Return the output of a successful command."""
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, **both, text=True, encoding="utf-8", **options)
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


def test_readme_has_every_recipe_in_its_table() -> None:
    """Find all but the variants of which no model is published."""
    table = re.search(r"^\| family \| recipes \|.*?^$", README, re.M | re.S)
    assert table is not None
    listed = re.findall(r"`([a-z0-9_]+)`", table.group())
    names = [name for name in recipe_names() if not name.endswith("_halves")]
    assert {*names} <= {*listed}
    assert all(listed.count(name) == 1 for name in names)


def test_readme_has_examples_in_the_sections_named_here() -> None:
    assert set(EXAMPLES) >= {*SLOW, "From Python"}


@pytest.mark.parametrize(
    "title",
    [pytest.param(t, marks=[pytest.mark.slow] if t in SLOW else []) for t in EXAMPLES],
)
def test_readme_section(title: str, tmp_path: Path, environment: Mapping[str, str]) -> None:
    folder = tmp_path / "work"
    for used in ("samples", "tests/data/tiny-bert", "tests/data/fireside-256"):
        shutil.copytree(ROOT / used, folder / used)
    for example in EXAMPLES[title]:
        printed = run([*example.command, example.code], cwd=folder, env=environment)
        assert_prints(example, printed)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_demo(tmp_path: Path, shims: Path, environment: Mapping[str, str]) -> None:
    match = re.search(
        r"^```sh\nmake demo\n```\n.*?^```text varies\n(.*?)^```$", README, re.M | re.S
    )
    assert match
    ready, demo = tmp_path / "ready", tmp_path / "demo"
    ready.touch()
    quick = [f"READY={ready}", f"BIN={shims}", f"DEMO={demo}"]
    printed = run(["make", "--no-print-directory", "demo", *quick], cwd=ROOT, env=environment)
    printed = printed.replace(str(shims), ".venv/bin").replace(str(demo), "build/demo")
    assert masked(printed) == masked(match[1])


COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_manual_names_every_option(command: str) -> None:
    match = re.search(rf"^## maxtool {command}$(.*?)(?=^## |\Z)", CLI, re.M | re.S)
    assert match, f"docs/cli.md has no section `## maxtool {command}`"
    own = {name for option in COMMANDS[command].params for name in option.opts} - COMMON
    assert {name for name in own if name.startswith("-")} <= set(
        re.findall(r"`(-[a-z0-9-]+)", match[1])
    )


def test_the_manual_names_every_schema_and_exit_code() -> None:
    code = "\n".join(file.read_text() for file in (ROOT / "maxtool").rglob("*.py"))
    schemas = set(re.findall(r'"(maxtool\.[a-z-]+/\d+)"', code))
    assert schemas <= set(re.findall(r"`(maxtool\.[a-z-]+/\d+)`", CLI))
    assert {"0", "1", "2", "3", "4", "5", "6", "130"} <= set(re.findall(r"^\| (\d+) \|", CLI, re.M))
