"""Measure the cost of compiling as a model gets deeper, and of compiling a small model in full.

Code generation is tracing, lowering, compiling and linking: the stages that do not read weights.
Equal layers are traced and compiled once, so it should not grow with their number. Each figure is
CPU time of a process of its own; the depths alternate.

    python benchmarks/codegen.py
    python benchmarks/codegen.py --checkpoint FOLDER    # the whole command on a checkpoint
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from checkpoints import Shape, machine, make

DEPTHS = (4, 32)
GENERATING = ("lower", "compile", "link")


def compile_once(checkpoint: Path, scratch: Path) -> tuple[float, float]:
    """CPU seconds of generating code, and of the whole command with its imports."""
    output = scratch / "artifact"
    command = [sys.executable, "-m", "maxtool", "compile", str(checkpoint), "-o", str(output)]
    before = os.times()
    done = subprocess.run(
        [*command, "--force", "--json", "-q"], check=True, stdout=subprocess.PIPE, text=True
    )
    after = os.times()
    whole = sum(after[index] - before[index] for index in (2, 3))
    seconds = json.loads(done.stdout)["cpu_seconds"]
    return sum(seconds[stage] for stage in GENERATING), whole


def by_depth(rounds: int, scratch: Path) -> None:
    folders = {}
    for layers in DEPTHS:
        folders[layers] = scratch / f"layers-{layers}"
        shape = Shape(512, hidden=256, inner=688, layers=layers, heads=8, kv_heads=4)
        make(folders[layers], shape)
    figures: dict[int, list[float]] = {layers: [] for layers in DEPTHS}
    for _ in range(rounds):
        for layers in DEPTHS:
            figures[layers].append(compile_once(folders[layers], scratch)[0])
    for layers, values in figures.items():
        listed = ", ".join(f"{value:.2f}" for value in values)
        print(f"{layers:3} layers  {statistics.median(values):.2f} s, median of {listed}")
    few, many = (statistics.median(figures[layers]) for layers in DEPTHS)
    print(f"ratio       {many / few:.2f}")


def whole_command(checkpoint: Path, rounds: int, scratch: Path) -> None:
    values = [compile_once(checkpoint, scratch) for _ in range(rounds)]
    generating, whole = (statistics.median(column) for column in zip(*values, strict=True))
    listed = ", ".join(f"{value:.2f}" for _, value in values)
    print(f"whole command    {whole:.2f} s of CPU, median of {listed}")
    print(f"generating code  {generating:.2f} s of it")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--checkpoint", type=Path)
    arguments = parser.parse_args()
    print(f"machine     {machine()}")
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
        if arguments.checkpoint:
            whole_command(arguments.checkpoint, arguments.rounds, Path(scratch))
        else:
            by_depth(arguments.rounds, Path(scratch))


if __name__ == "__main__":
    main()
