#!/usr/bin/env python3
"""Run every check that needs a GPU, in one call: `python3 check.py`.

It needs Python, NumPy and a CUDA 13 runtime; PyTorch and transformers where the peer is to be
measured too. Results are written after every step, so that a call that is cut short leaves what it
found: results.json, and results.md for people.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from table import markdown

HERE = Path(__file__).resolve().parent
ROUNDS = 5
NO_GPU = 6
PROMPT, TOKENS = 2048, 128


@dataclass(frozen=True)
class Step:
    """One process, and the seconds it may take.

    Attributes:
        name: Where its result goes in results.json, words separated by slashes.
        command: Its arguments, behind this Python's.
        seconds: Its limit.
        json: Whether the last line that it prints is the result; else its exit code is.
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    json: bool = True


def steps() -> Iterator[Step]:
    """All of them, the most telling first."""
    yield Step("card", ("card.py",), 60)
    for folder in sorted((HERE / "parity").iterdir()):
        yield Step(
            f"parity/{folder.name}", (f"parity/{folder.name}/run.py", "--check", "--json"), 60
        )
    text = ("text/run.py", "--prompt", "Once upon a time", "--max-tokens", "200", "-q")
    yield Step("text", ("same_text.py", "text/expected.txt", *text), 60)
    shapes = sorted((HERE / "speed").iterdir())
    sizes = (str(PROMPT), str(TOKENS), str(ROUNDS))
    for folder in shapes:
        yield Step(f"speed/{folder.name}/maxtool", ("ours.py", str(folder), *sizes), 120)
    for folder in shapes:
        shape = str(folder / "shape.json")
        yield Step(f"speed/{folder.name}/transformers", ("peer.py", shape, *sizes), 240)


def unpack() -> None:
    """The archives of this folder, those that were not unpacked before."""
    for path in HERE.glob("*.tar.xz"):
        if not (HERE / path.name.removesuffix(".tar.xz")).exists():
            with tarfile.open(path) as archive:
                archive.extractall(HERE, filter="data")


def run(step: Step, left: float) -> dict[str, Any]:
    """Return the results of a step, or the reason why it has none."""
    began = time.monotonic()
    environment = os.environ | {"PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    try:
        done = subprocess.run(
            [sys.executable, *step.command],
            cwd=HERE,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=max(1.0, min(step.seconds, left)),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done within {min(step.seconds, left):.0f} s"}
    lines = done.stdout.strip().splitlines()
    result: dict[str, Any] = {"seconds": time.monotonic() - began, "exit": done.returncode}
    try:
        result |= json.loads(lines[-1])
    except (IndexError, ValueError):
        result["error"] = "\n".join(done.stderr.strip().splitlines()[-5:]) or "printed no result"
    return result


def place(results: dict[str, Any], name: str, result: dict[str, Any]) -> None:
    """Store a result under its dotted name, a level for each word."""
    *outer, last = name.split("/")
    for word in outer:
        results = results.setdefault(word, {})
    results[last] = result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path.cwd(), help="folder of the results")
    parser.add_argument("--seconds", type=float, default=570, help="stop after so long (570)")
    parser.add_argument("--only", default="", help="steps whose names begin so")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    unpack()
    began = time.monotonic()
    results: dict[str, Any] = json.loads((HERE / "kit.json").read_text())
    failed = 0
    for step in steps():
        left = arguments.seconds - (time.monotonic() - began)
        if not step.name.startswith(arguments.only):
            continue
        result = run(step, left) if left > 1 else {"error": "no time left"}
        failed += "error" in result or bool(result.get("exit"))
        place(results, step.name, result)
        print(f"{step.name}: {result.get('error') or 'done'}", file=sys.stderr, flush=True)
        if step.name == "card" and "error" in result:
            print(f"no GPU to use here: run {__file__} on a machine with one", file=sys.stderr)
            return NO_GPU
        (arguments.output / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (arguments.output / "results.md").write_text(markdown(results))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
