"""Quantized weights beside llama.cpp: prefill and decode of a shape, type by type.

Weights are random, of the usual size; llama.cpp's own tool quantizes them, and both sides read the
same file. They run in processes of their own that alternate, on two threads each; figures are
medians over the rounds.

    python benchmarks/llama_cpp.py --llama-cpp BUILD/bin --shape 1.1b
    python benchmarks/llama_cpp.py --llama-cpp BUILD/bin --types Q4_0,Q8_0 --target cpu:x86-64-v3
    python benchmarks/llama_cpp.py --llama-cpp BUILD/bin --shape lfm2-1.2b --types Q4_K_M
    python benchmarks/llama_cpp.py --llama-cpp BUILD/bin --peer ik_llama=OTHER/bin/llama-bench

The start is that of a whole process, with all files in memory, up to the first token behind 16.
Ours imports ``run.py``, checks the files and picks the token; large files were hashed by an earlier
process, which noted that. ``llama-bench`` maps its file, as it does by itself, without a warm-up.

``BUILD/bin`` holds ``llama-bench`` and ``llama-quantize``; README.md says how to build them. With
``--work FOLDER`` the files are kept, and used again by the next run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from checkpoints import Described, Shape, machine, make
from decode import environment, listed
from hybrid_shapes import Lfm2Shape, Qwen3NextShape

from maxtool.benchmark.work import GenerationWork
from maxtool.runtime.loader.manifest import Manifest

SHAPES: dict[str, Described] = {
    "1.1b": Shape(32000, 2048, 5632, layers=22, heads=32, kv_heads=4, context=8192, tied=False),
    "135m": Shape(49152, 576, 1536, layers=30, heads=9, kv_heads=3, context=8192),
    "lfm2-1.2b": Lfm2Shape(),
    "qwen3_next-1b": Qwen3NextShape(),
}
# llama-quantize's names. Files of these are converted by maxtool, from random float32.
CONVERTED = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
TYPES = (*CONVERTED, "Q8_0", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K")
TOKENIZER = Path(__file__).resolve().parents[1] / "samples" / "fireside"
PROMPT, DECODED, FIRST = 512, 64, 16
ROOM = 1024  # positions of the cache

# Runs in the artifact's folder; prints tokens a second of a prompt and of what follows it.
WORKER = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import run
prompt, decoded = int(sys.argv[2]), int(sys.argv[3])
model = run.load()
ids = [3 + 7 * i % 900 for i in range(prompt)]

def prefill():
    began = time.perf_counter()
    next(iter(model.generate(ids, max_tokens=1)))
    return prompt / (time.perf_counter() - began)

def decode(count):
    tokens = iter(model.generate([1], max_tokens=count + 1))
    next(tokens)
    began = time.perf_counter()
    return sum(1 for _ in tokens) / (time.perf_counter() - began)

prefill(), decode(8)
speeds = {
    "prefill": max(prefill() for _ in range(2)),
    "decode": max(decode(decoded) for _ in range(2)),
}
print(json.dumps(speeds))
"""
# Loads the artifact and makes one token of a short prompt.
OPENING = """
import sys
sys.path.insert(0, sys.argv[1])
import run
next(iter(run.load().generate([3 + 7 * i % 900 for i in range(int(sys.argv[2]))], max_tokens=1)))
"""

# What the machine reads from memory, in bytes a second, on as many threads as an artifact uses.
READING = """
import json
from maxtool.benchmark.machine_worker import MachineWorker
machine = MachineWorker()
machine.describe()
print(json.dumps({"read": machine.turn(0.5)["read"]}))
"""

Figures = dict[str, float]


@dataclass(frozen=True)
class Side:
    """A program that is measured: a figure for each question, on each call."""

    name: str
    speeds: Callable[[], Figures]


def main() -> None:
    """Measure every type, and print a table."""
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
        work = arguments.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        print(f"machine  {machine()}")
        print(f"model    {arguments.shape} shape, {arguments.threads} threads a side")
        for name in arguments.types:
            print(line(name, *measure(name, work, arguments)), flush=True)


def measure(name: str, work: Path, arguments: argparse.Namespace) -> tuple[float, list[str]]:
    """Seconds of compiling, and for each question what each side reached."""
    source = checkpoint(name, work, arguments)
    artifact = work / f"{source.stem}-{arguments.target.replace(':', '-')}"
    seconds = compiled(source, artifact, arguments, ROOM)
    env = environment(arguments.threads)
    sides = [Side("maxtool", partial(ours, artifact, env))]
    for peer, bench in peers_of(arguments).items():
        sides.append(Side(peer, partial(theirs, bench, source, arguments.threads, env)))
    seen: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(arguments.rounds):
        for side in sides:
            for question, figure in side.speeds().items():
                seen[question, side.name].append(figure)
        seen["read", "machine"].append(
            json.loads(output([sys.executable, "-c", READING], env))["read"]
        )
    rows = [row(question, sides, seen) for question in ("prefill", "decode", "start")]
    return seconds, [*rows, bandwidth(artifact, seen)]


def bandwidth(artifact: Path, seen: dict[tuple[str, str], list[float]]) -> str:
    """The share of what the machine reads from memory that decoding reads."""
    moved = GenerationWork(Manifest(artifact)).decode(1, DECODED).per(DECODED).bytes
    read = statistics.median(seen["read", "machine"])
    share = moved * statistics.median(seen["decode", "maxtool"]) / read
    return f"decode reads {share:.0%} of the {read / 1e9:.1f} GB/s that this machine reads"


def row(question: str, sides: list[Side], seen: dict[tuple[str, str], list[float]]) -> str:
    """The figures of one question: medians, and ours divided by each peer's."""
    medians = {side.name: statistics.median(seen[question, side.name]) for side in sides}
    own, *peers = medians.items()
    ratios = ", ".join(f"{own[1] / figure:.2f} of {peer}'s {figure:.4g}" for peer, figure in peers)
    rounds, lone = listed(seen[question, own[0]]), len(peers) == 1
    others = ", no other peer given (--peer NAME=PATH)" if lone else ""
    return f"{question} {own[1]:.4g} ({rounds}): {ratios}{others}"


def line(name: str, seconds: float, rows: list[str]) -> str:
    """A type's figures."""
    return "\n".join([f"{name}: compiled in {seconds:.1f} s", *(f"    {each}" for each in rows)])


def checkpoint(name: str, work: Path, arguments: argparse.Namespace) -> Path:
    """A GGUF file of a type, made unless it is there."""
    file = work / f"{arguments.shape}-{name}.gguf"
    if file.exists():
        return file
    if name in CONVERTED:
        folder = work / arguments.shape
        if not folder.exists():
            make(folder, SHAPES[arguments.shape])
            for each in TOKENIZER.glob("tokenizer*"):  # llama.cpp wants one; it is filled up
                shutil.copy(each, folder)
        convert = [sys.executable, "-m", "maxtool", "convert", folder, "-o", file]
        quietly([*convert, "--dtype", CONVERTED[name]])
    else:
        source = checkpoint("BF16", work, arguments)
        quietly([arguments.llama_cpp / "llama-quantize", source, file, name])
    return file


def compiled(source: Path, artifact: Path, arguments: argparse.Namespace, context: int) -> float:
    """Compile a file; returns the seconds it took."""
    command = [sys.executable, "-m", "maxtool", "compile", source, "-o", artifact, "--force"]
    began = time.perf_counter()
    quietly([*command, "--target", arguments.target, "--context", context])
    return time.perf_counter() - began


def ours(artifact: Path, env: dict[str, str]) -> Figures:
    """Tokens a second of an artifact, and seconds until the first token of a new process."""
    python = [sys.executable, "-c"]
    speeds = json.loads(output([*python, WORKER, artifact, PROMPT, DECODED], env))
    return speeds | {"start": seconds([*python, OPENING, artifact, FIRST], env)}


def theirs(bench: Path, file: Path, threads: int, env: dict[str, str]) -> Figures:
    """The same of ``llama-bench``."""
    command = [bench, "-m", file, "-t", threads, "-o", "json"]
    runs = json.loads(output([*command, "-p", PROMPT, "-n", DECODED, "-r", 2], env))
    names = ["prefill" if each["n_prompt"] else "decode" for each in runs]
    speeds = {name: max(each["samples_ts"]) for name, each in zip(names, runs, strict=True)}
    start = [*command, "-p", FIRST, "-n", 0, "-r", 1, *without_warmup(bench)]
    return speeds | {"start": seconds(start, env)}


@cache
def without_warmup(bench: Path) -> list[str]:
    """The option for no warm-up, which a fork spells otherwise."""
    known = subprocess.run([bench, "--help"], capture_output=True, text=True, check=False)
    return ["--no-warmup"] if "--no-warmup" in known.stdout + known.stderr else ["-w", "0"]


def seconds(command: list[object], env: dict[str, str]) -> float:
    """The time of a whole process."""
    began = time.perf_counter()
    output(command, env)
    return time.perf_counter() - began


def output(command: list[object], env: dict[str, str]) -> str:
    """The output of a program; the benchmark ends where it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{words[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def quietly(command: list[object]) -> None:
    """Run a program that makes a file."""
    output(command, environment(2))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_peers(parser)
    parser.add_argument("--shape", choices=SHAPES, default="1.1b")
    parser.add_argument("--types", default=",".join(TYPES), help="separated by commas")
    parser.add_argument("--target", default="cpu", help="as for maxtool compile")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="folder for the files, which are kept there")
    arguments = parser.parse_args()
    arguments.types = arguments.types.split(",")
    if unknown := sorted(set(arguments.types) - set(TYPES)):
        parser.error(f"no type {', '.join(unknown)}; there are {', '.join(TYPES)}")
    return arguments


def add_peers(parser: argparse.ArgumentParser) -> None:
    """Add the options that name llama.cpp and its forks."""
    parser.add_argument("--llama-cpp", type=Path, required=True, help="folder of llama-bench")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        type=named_program,
        metavar="NAME=LLAMA_BENCH",
        help="a fork's llama-bench, such as ik_llama.cpp's",
    )


def named_program(text: str) -> tuple[str, Path]:
    """The name and the program of ``NAME=PATH``."""
    name, _, path = text.partition("=")
    if not name or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text}: NAME=PATH with the path of a llama-bench")
    return name, Path(path)


def peers_of(arguments: argparse.Namespace) -> dict[str, Path]:
    """The llama-bench of each peer by its name."""
    return {"llama.cpp": arguments.llama_cpp / "llama-bench", **dict(arguments.peer)}


if __name__ == "__main__":
    main()
