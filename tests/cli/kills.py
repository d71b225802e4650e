"""Kills conversions and compilations at random moments and looks at what they leave.

Run as ``python -m tests.cli.kills FOLDER KIND COUNT SEED``, with a KIND of file, folder, splits or
artifact. Prints how many were killed, how often the output was the old one and the new one, and
what was wrong, as a JSON object.
The children are forked, so that all of their time is that of the command.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from maxtool import conversion
from maxtool.cli.app import app
from maxtool.files import check_output
from maxtool.weights import open_checkpoint
from tests.effort import NONE

DATA = Path(__file__).resolve().parents[1] / "data"
SOURCE = str(DATA / "tiny-llama")
# The command without its output, and what makes the one version differ from the other.
COMMANDS: dict[str, tuple[list[str], tuple[list[str], list[str]]]] = {
    "file": (
        ["convert", SOURCE, "--to", "gguf"],
        (["--dtype", "float16"], ["--dtype", "bfloat16"]),
    ),
    "folder": (["convert", SOURCE], (["--dtype", "float16"], ["--dtype", "bfloat16"])),
    "splits": (
        ["convert", SOURCE, "--to", "gguf", "--split-max-size", "30K"],
        (["--dtype", "float16"], ["--dtype", "bfloat16"]),
    ),
    "artifact": (["compile", SOURCE], (["--context", "8"], ["--context", "16"])),
}
IMPORTED = [conversion]  # what a command would otherwise spend its time on


def start(kind: str, out: Path, version: int) -> int:
    """Start a command; returns the process's id."""
    child = os.fork()
    if child:
        return child
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    command, versions = COMMANDS[kind]
    code = 99
    try:
        app([*command, *versions[version], "-o", str(out), "--force"])
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os._exit(code)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content(kind: str, out: Path) -> object:
    """Return a key that tells versions of a whole output apart, and from partial ones."""
    if kind == "splits":
        first = next(out.parent.glob("out-00001-of-*"), None)
        files = [] if first is None else open_checkpoint(first).files
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    if not out.is_dir():
        return hashlib.sha256(out.read_bytes()).hexdigest()
    if (out / "manifest.json").exists():
        from maxtool.runtime import loader

        loader.Manifest(out).verify()
        return json.loads((out / "manifest.json").read_text())["context"]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in out.iterdir()}


def main(root: Path, kind: str, count: int, seed: int) -> dict[str, object]:
    """Kill ``count`` commands, each of which would replace the output of the one before."""
    if kind == "artifact":
        IMPORTED.append(importlib.import_module("maxtool.artifact"))
        # Optimising takes most of the time, in which nothing is written.
        importlib.import_module("maxtool.compiler.cpu_target").OPT_LEVEL = NONE
    out, draw = root / "out", random.Random(seed)
    known, seconds = [], 0.0
    for version in (0, 1):
        begun = time.monotonic()
        assert ended(start(kind, out, version)) == 0
        seconds = time.monotonic() - begun
        known.append(content(kind, out))
    assert known[0] != known[1]
    result = Counter({"old": 0, "new": 0})
    wrong: list[str] = []
    # One in each of so many equal parts of the time, in any order.
    moments = [(part + draw.random()) / count for part in range(count)]
    draw.shuffle(moments)
    for number, moment in enumerate(moments):
        before, version = content(kind, out), draw.randrange(2)
        child = start(kind, out, version)
        time.sleep(1.1 * seconds * moment)
        os.kill(child, signal.SIGKILL)
        result[f"ended with {ended(child)}"] += 1
        wrong += problems(number, kind, out, [before, known[version]])
        result["new" if content(kind, out) == known[version] != before else "old"] += 1
    return {"found": result, "wrong": wrong}


def problems(number: int, kind: str, out: Path, allowed: list[object]) -> list[str]:
    """Return the problems after a command was killed, and after the next one has begun."""
    between = [{}] if kind == "splits" else []  # parts are moved one after the other
    right = content(kind, out) in allowed + between
    check_output(out, force=True)
    right &= content(kind, out) in allowed
    wrong = [] if right else [f"{number}: the output is neither"]
    hidden = [name for name in os.listdir(out.parent) if not name.startswith("out")]  # noqa: PTH208
    return wrong + [f"{number}: {name} is left" for name in hidden]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))))
