"""Artifacts for GPUs, built without one, beside those for this CPU: size and build time.

Every recipe's tiny checkpoint of ``tests/data`` is compiled by a command of its own, for this CPU
and for the architectures, by turns: the code of a tiny model is that of a large one of its kind,
only its weights are small. With ``--large`` there is a Llama of 1.1B too, whose weights are holes
in a file. Figures are seconds of the whole command, with importing TVM, by the clock; their ratio,
and that of the seconds of all cores; core seconds of making device code; bytes of the code alone.

    python benchmarks/cross_build.py --archs sm_80,sm_90 --dtype float16 bfloat16 float32
    python benchmarks/cross_build.py --checkpoint FOLDER    # others

Predicted before the first run: below 2 times the CPU's build with two architectures, most of it
importing TVM; a second or two of device code for each. What was seen is in cross_build.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from checkpoints import Shape, machine, make_sparse

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
CODE = (".so", ".cubin", ".ptx")
LARGE = Shape(32000, 2048, 5632, 22, 32, 4, 2048, tied=False)
COLUMNS = (
    *("model", "type", "CPU, s", "GPU, s", "ratio", "cores", "device code, s"),
    *("model.so, KiB", "cubins, KiB", "kernels", "registers", "spilling"),
)


@dataclass
class Built:
    """One command that compiled: its seconds, its report, and the bytes of its code."""

    clock: float
    cores: float
    report: dict[str, object]
    sizes: dict[str, int]


def build(checkpoint: Path, dtype: str, target: str, scratch: Path) -> Built:
    output = scratch / "artifact"
    command = [sys.executable, "-m", "maxtool", "compile", str(checkpoint), "-o", str(output)]
    options = ["--dtype", dtype, "--target", target, "--force", "--json", "-q"]
    before = os.times()
    done = subprocess.run([*command, *options], check=True, stdout=subprocess.PIPE, text=True)
    after = os.times()
    sizes = {file.name: file.stat().st_size for file in output.iterdir() if file.suffix in CODE}
    cores = sum(after[index] - before[index] for index in (2, 3))
    return Built(after.elapsed - before.elapsed, cores, json.loads(done.stdout), sizes)


def compare(checkpoint: Path, dtype: str, archs: str, rounds: int, scratch: Path) -> list[str]:
    """The row of one model in one type."""
    turns = [
        (
            build(checkpoint, dtype, "cpu", scratch),
            build(checkpoint, dtype, f"cuda:{archs}", scratch),
        )
        for _ in range(rounds)
    ]
    host, device = ([turn[side] for turn in turns] for side in (0, 1))
    cpu, gpu = (median(one.clock for one in side) for side in (host, device))
    seconds = [one.report["cpu_seconds"]["device code"] for one in device]
    kernels = next(iter(device[0].report["kernels"].values()))
    sizes = device[0].sizes
    cubins = sum(size for name, size in sizes.items() if name.endswith(".cubin"))
    spilling = [
        name
        for name, resources in kernels.items()
        if resources["spill_stores"] or resources["stack"]
    ]
    figures = [
        cpu,
        gpu,
        gpu / cpu,
        median(run.cores for run in device) / median(one.cores for one in host),
        median(seconds),
    ]
    return [
        checkpoint.name.removeprefix("tiny-"),
        dtype,
        *(f"{figure:.2f}" for figure in figures),
        f"{sizes['model.so'] / 1024:.0f}",
        f"{cubins / 1024:.0f}",
        str(len(kernels)),
        str(max(one["registers"] for one in kernels.values())),
        ", ".join(spilling) or "none",
    ]


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--archs", default="sm_80,sm_90")
    parser.add_argument("--dtype", nargs="+", default=["float16", "bfloat16", "float32"])
    parser.add_argument("--checkpoint", nargs="+", type=Path)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    checkpoints = options.checkpoint or sorted(
        file.parent for file in DATA.glob("tiny-*/config.json")
    )
    print(machine())
    print(f"GPU: {options.archs}; medians of {options.rounds}")
    print(row(COLUMNS))
    print(row(["---"] * len(COLUMNS)))
    with tempfile.TemporaryDirectory() as scratch:
        if options.large:
            make_sparse(Path(scratch, "llama-1.1b"), LARGE)
            checkpoints = [*checkpoints, Path(scratch, "llama-1.1b")]
        for checkpoint in checkpoints:
            for dtype in options.dtype:
                cells = compare(checkpoint, dtype, options.archs, options.rounds, Path(scratch))
                print(row(cells), flush=True)


if __name__ == "__main__":
    main()
