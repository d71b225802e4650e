"""Sharded quantization: so many workers with a share each, beside one process, in turns.

A Llama with random weights in bfloat16, of 8 GB unless told otherwise, is made in the work folder.

    python benchmarks/cluster.py --work FOLDER
    python benchmarks/cluster.py --work FOLDER --size 1GB --workers 1,2,4 --rounds 3
    python benchmarks/cluster.py --work FOLDER --size 1GB --ray head:6379

Workers are processes of this machine (``--shards I/N``), of which the finishing step is timed with
them; with ``--ray`` an existing cluster is one row more. Prints the time by the clock, that of the
processors, and the most memory of one process and of all together; all outputs are compared with
that of one process. With files in memory (a work folder in /dev/shm) disks do not count.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from checkpoints import Shape, machine
from llama_cpp import TOKENIZER

from maxtool.cli.sizes import parse_size

VOCABULARY, HIDDEN, INNER, HEADS, KV_HEADS = 32_000, 2048, 5632, 32, 8
# Parts of the output, roughly: more than there are workers, and not so many that starting counts.
PARTS = 12
BLOCK = 1 << 23  # random values, which all tensors repeat from different places


@dataclass(frozen=True)
class Taken:
    """Cost of a run: seconds by the clock and of processors, bytes of memory."""

    wall: float
    processor: float
    most: int  # of one process
    together: int


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--size", default="8GB", help="of the source")
    parser.add_argument("--type", default="Q4_K_M")
    parser.add_argument("--workers", default="1,2,4", help="with commas between them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", metavar="ADDRESS", help="a cluster that sees the work folder")
    parser.add_argument("--work", type=Path, help="keeps the source")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (asked.work or Path(temporary)).resolve()
        source = made(work, parse_size(asked.size, "--size") or 0)
        size = sum(file.stat().st_size for file in source.iterdir())
        print(
            f"{machine()}, {len(os.sched_getaffinity(0))} cores; {size / 1e9:.1f} GB, {asked.type}"
        )
        out = work / "written"
        common = [
            str(source),
            "--quantize",
            asked.type,
            "--split-max-size",
            str(size // 3 // PARTS),
        ]
        ways = {"one process": [[common]]}
        for count in map(int, asked.workers.split(",")):
            shares = [[*common, "--shards", f"{one}/{count}"] for one in range(1, count + 1)]
            ways[f"{count} workers"] = [shares, [[*common, "--shards", "finish"]]]
        if asked.ray:
            ways["Ray"] = [[[*common, "--executor", "ray", "--ray-address", asked.ray]]]
        show(in_turns(ways, out, asked.rounds))


def made(work: Path, size: int) -> Path:
    """A Hugging Face folder of about so many bytes."""
    folder = work / f"llama-{size}"
    if (folder / "config.json").exists():
        return folder
    folder.mkdir(parents=True)
    ends = Shape(VOCABULARY, HIDDEN, INNER, 0, HEADS, KV_HEADS)
    layer = bytes_of(Shape(VOCABULARY, HIDDEN, INNER, 1, HEADS, KV_HEADS)) - bytes_of(ends)
    layers = max(1, round((size - bytes_of(ends)) / layer))
    shape = Shape(VOCABULARY, HIDDEN, INNER, layers, HEADS, KV_HEADS)
    write(folder / "model.safetensors", shape.tensors)
    for file in TOKENIZER.glob("tokenizer*"):
        shutil.copy(file, folder)
    (folder / "config.json").write_text(json.dumps(shape.config | {"dtype": "bfloat16"}))
    return folder


def bytes_of(shape: Shape) -> int:
    return sum(2 * int(np.prod(one)) for one in shape.tensors.values())


def write(file: Path, tensors: dict[str, tuple[int, ...]]) -> None:
    """A safetensors file of random weights, a block at a time."""
    header, offset = {}, 0
    for name, shape in tensors.items():
        end = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    random = np.random.default_rng(7)
    block = (random.standard_normal(BLOCK, np.float32) * 0.02).astype(ml_dtypes.bfloat16)
    said = json.dumps(header).encode()
    with file.open("wb") as stream:
        stream.write(len(said).to_bytes(8, "little") + said)
        for shape in tensors.values():
            left = int(np.prod(shape))
            while left:
                start = int(random.integers(BLOCK // 2))
                some = block[start : start + min(left, BLOCK // 2)]
                stream.write(some.tobytes())
                left -= len(some)


def in_turns(
    ways: dict[str, list[list[list[str]]]], out: Path, rounds: int
) -> dict[str, list[Taken]]:
    """Run all ways in each round; the first output of one process is what others have to be."""
    first, taken = out.with_name("first"), defaultdict(list)
    for folder in (first, out):
        shutil.rmtree(folder, ignore_errors=True)
    for _ in range(rounds):
        for name, steps in ways.items():
            taken[name].append(run(steps, out))
            if first.exists():
                check_same(first, out)
                shutil.rmtree(out)
            else:
                out.rename(first)
    shutil.rmtree(first)
    return taken


def run(steps: list[list[list[str]]], out: Path) -> Taken:
    """Run steps one after the other, the commands of each side by side."""
    out.mkdir()
    begun, ended = time.perf_counter(), []
    for commands in steps:
        command = [sys.executable, "-m", "maxtool", "convert", "-q", "-o", str(out / "out.gguf")]
        started = [
            subprocess.Popen([*command, *one], stdout=subprocess.DEVNULL) for one in commands
        ]
        step = [os.wait4(one.pid, 0) for one in started]
        if any(status for _, status, _ in step):
            raise SystemExit("a command failed")
        ended.append([usage for _, _, usage in step])
    wall = time.perf_counter() - begun
    usages = [usage for step in ended for usage in step]
    peaks = [[usage.ru_maxrss << 10 for usage in step] for step in ended]
    return Taken(
        wall,
        sum(usage.ru_utime + usage.ru_stime for usage in usages),
        max(max(step) for step in peaks),
        max(sum(step) for step in peaks),
    )


def check_same(first: Path, second: Path) -> None:
    """End the program if two folders hold other files."""
    names = sorted(file.name for file in first.iterdir())
    same, _, _ = filecmp.cmpfiles(first, second, names, shallow=False)
    if sorted(same) != names or len(names) != len(list(second.iterdir())):
        raise SystemExit("OTHER BYTES")


def show(taken: dict[str, list[Taken]]) -> None:
    """Medians of each way, and how many times as fast as one process it is by the clock."""
    alone = statistics.median(one.wall for one in taken["one process"])
    print(f"{'':12} {'seconds':>8} {'times':>6} {'processor s':>12} {'MB, one':>8} {'all':>6}")
    for name, rounds in taken.items():
        wall = statistics.median(one.wall for one in rounds)
        processor = statistics.median(one.processor for one in rounds)
        most, all_of_it = (max(getattr(one, key) for one in rounds) for key in ("most", "together"))
        numbers = f"{wall:8.1f} {alone / wall:6.2f} {processor:12.1f}"
        print(f"{name:12} {numbers} {most / 1e6:8.0f} {all_of_it / 1e6:6.0f}")


if __name__ == "__main__":
    main()
