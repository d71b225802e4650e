"""Quantizing beside llama.cpp: ``convert --quantize`` and llama-quantize, whole processes in turns.

Both read the same file, which is in memory, write to the same folder, and use as many threads. A
run that is not counted lets Python keep its modules compiled, as they are where it is installed.

    python benchmarks/quantize.py --llama-cpp BUILD/bin --shape 1.1b
    python benchmarks/quantize.py --llama-cpp BUILD/bin --types Q8_0,Q4_K_M --work FOLDER

``BUILD/bin`` holds ``llama-quantize``; README.md says how to build it. Prints medians of the wall
and the processor time over the rounds, and whether all tensors of both files have the same bytes.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from checkpoints import machine, make
from gguf import GGUFReader
from llama_cpp import SHAPES, TOKENIZER

TYPES = ("Q8_0", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K")

Times = tuple[float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", type=Path, required=True, metavar="BIN")
    parser.add_argument("--shape", choices=SHAPES, default="135m")
    parser.add_argument("--types", default=",".join(TYPES), help="with commas between them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="keeps the source, SHAPE-BF16.gguf")
    parser.add_argument("--imatrix", type=Path, help="weigh errors by it, on both sides")
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    print(f"{machine()}, {threads} threads, {arguments.shape}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder, "compiled"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        source = _source(arguments.work or Path(folder), arguments.shape)
        weighed = ["--imatrix", str(arguments.imatrix)] if arguments.imatrix else []
        for name in arguments.types.split(","):
            outputs = Path(folder, "ours.gguf"), Path(folder, "theirs.gguf")
            commands = {
                "maxtool": [*_ours(source, outputs[0], name), *weighed],
                "llama-quantize": [
                    *(str(arguments.llama_cpp / "llama-quantize"), *weighed),
                    *(str(source), str(outputs[1]), name, str(threads)),
                ],
            }
            subprocess.run(commands["maxtool"], check=True, capture_output=True)
            times = in_turns(commands, arguments.rounds, outputs)
            subprocess.run(commands["maxtool"], check=True, capture_output=True)
            _show(name, times, same=_same(*outputs))


def _source(folder: Path, shape: str) -> Path:
    """A GGUF file of bfloat16 with random weights."""
    source = folder / f"{shape}-BF16.gguf"
    if not source.exists():
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = folder / shape
        make(checkpoint, SHAPES[shape])
        for file in TOKENIZER.glob("tokenizer*"):
            shutil.copy(file, checkpoint)
        options = ["convert", str(checkpoint), "-o", str(source), "--dtype", "bfloat16"]
        subprocess.run([sys.executable, "-m", "maxtool", *options], check=True)
    return source


def _ours(source: Path, output: Path, name: str) -> list[str]:
    options = [str(source), "-o", str(output), "--quantize", name, "--force"]
    return [sys.executable, "-m", "maxtool", "convert", *options]


def in_turns(
    commands: dict[str, list[str]], rounds: int, outputs: Sequence[Path]
) -> dict[str, Times]:
    """Medians of wall and processor time, in seconds.

    ``outputs`` are removed before each run: one side would overwrite its own in place, and the
    other keep it until the new one is whole.
    """
    taken: dict[str, list[Times]] = defaultdict(list)
    for _ in range(rounds):
        for side, command in commands.items():
            for output in outputs:
                output.unlink(missing_ok=True)
            taken[side].append(_timed(command))
    return {side: _medians(times) for side, times in taken.items()}


def _timed(command: list[str]) -> Times:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return wall, user + system


def _medians(times: list[Times]) -> Times:
    walls, processor = zip(*times, strict=True)
    return statistics.median(walls), statistics.median(processor)


def _show(name: str, times: dict[str, Times], *, same: bool) -> None:
    (wall, cpu), (their_wall, their_cpu) = times["maxtool"], times["llama-quantize"]
    print(
        f"{name:8} maxtool {wall:6.1f} s, {cpu:6.1f} s of processors; llama-quantize"
        f" {their_wall:6.1f}, {their_cpu:6.1f}: {their_wall / wall:.1f}x,"
        f" {their_cpu / cpu:.1f}x; {'the same bytes' if same else 'OTHER BYTES'}",
        flush=True,
    )


def _same(first: Path, second: Path) -> bool:
    """Return whether the tensors of two files have the same types and bytes."""
    files = [{t.name: t for t in GGUFReader(file).tensors} for file in (first, second)]
    return files[0].keys() == files[1].keys() and all(
        tensor.tensor_type == files[1][name].tensor_type
        and np.array_equal(tensor.data.view(np.uint8), files[1][name].data.view(np.uint8))
        for name, tensor in files[0].items()
    )


if __name__ == "__main__":
    main()
