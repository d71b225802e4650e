"""Decoding several texts at once: tokens a second against their number, beside llama.cpp.

Weights are random, of the usual size, and both sides read the same file. An artifact with slots for
the most texts decodes with 1, 2, 4 and so on of them in use, each behind the same prompt;
llama.cpp does the same in ``llama-batched-bench``, and where that was not built the column says so.
They run in processes of their own that alternate; figures are medians over the rounds.

    python benchmarks/batched.py --llama-cpp BUILD/bin --shape 1.1b --types Q8_0
    python benchmarks/batched.py --llama-cpp BUILD/bin --shape 135m --texts 1,4,16,64

``BUILD/bin`` is as for ``llama_cpp.py``, whose files ``--work FOLDER`` shares.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from checkpoints import machine
from decode import environment
from llama_cpp import SHAPES, TYPES, checkpoint, output, quietly

PROMPT, DECODED = 128, 32
PEER = "llama-batched-bench"

# Runs in the artifact's folder; prints tokens a second of all texts together, by their number.
WORKER = """
import json, sys, time
import numpy as np
sys.path.insert(0, sys.argv[1])
import run
prompt, decoded, *numbers = map(int, sys.argv[2:])
model = run.load()
ids = [3 + 7 * i % 900 for i in range(prompt)]

def places(position, slots):
    return {"position": np.full(len(slots), position, "i4"), "slot": np.array(slots, "i4")}

def decode(texts):
    state, slots = model.new_state(), list(range(texts))
    for slot in slots:
        model.run("prefill", {"input_ids": [ids], **places(0, [slot])}, state)
    tokens = [[5]] * texts
    began = time.perf_counter()
    for step in range(decoded):
        rows = model.run("decode", {"input_ids": tokens, **places(prompt + step, slots)}, state)
        tokens = rows["logits"].argmax(-1)[:, None]
    return texts * decoded / (time.perf_counter() - began)

decode(1)
print(json.dumps({texts: decode(texts) for texts in numbers}))
"""


def main() -> None:
    """Measure every type, and print a table for each."""
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
        work = arguments.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        print(f"machine  {machine()}")
        print(f"model    {arguments.shape} Llama shape, {arguments.threads} threads a side")
        print(f"texts    {DECODED} tokens of each, behind {PROMPT}; tokens/s of all together")
        for name in arguments.types:
            print(name)
            for line in measure(name, work, arguments):
                print(f"    {line}", flush=True)


def measure(name: str, work: Path, arguments: argparse.Namespace) -> list[str]:
    """A line for each number of texts."""
    source = checkpoint(name, work, arguments)
    most = max(arguments.texts)
    artifact = work / f"{source.stem}-batch-{most}"
    command = [sys.executable, "-m", "maxtool", "compile", source, "-o", artifact, "--force"]
    quietly([*command, "--batch", most, "--context", PROMPT + DECODED])
    peer = arguments.llama_cpp / PEER
    seen: dict[tuple[str, int], list[float]] = defaultdict(list)
    for _ in range(arguments.rounds):
        for texts, speed in ours(artifact, arguments).items():
            seen["maxtool", texts].append(speed)
        for texts, speed in theirs(peer, source, arguments).items():
            seen["llama.cpp", texts].append(speed)
    return [line(texts, seen) for texts in arguments.texts]


def line(texts: int, seen: dict[tuple[str, int], list[float]]) -> str:
    """The medians for one number of texts, and their ratio."""
    own = statistics.median(seen["maxtool", texts])
    if not seen["llama.cpp", texts]:
        return f"{texts:4} texts  {own:8.1f}   llama.cpp: no {PEER} was built"
    other = statistics.median(seen["llama.cpp", texts])
    return f"{texts:4} texts  {own:8.1f}   llama.cpp {other:8.1f}   ratio {own / other:.2f}"


def ours(artifact: Path, arguments: argparse.Namespace) -> dict[int, float]:
    """Tokens a second of an artifact, by the number of texts."""
    command = [sys.executable, "-c", WORKER, artifact, PROMPT, DECODED, *arguments.texts]
    speeds = json.loads(output(command, environment(arguments.threads)))
    return {int(texts): speed for texts, speed in speeds.items()}


def theirs(bench: Path, file: Path, arguments: argparse.Namespace) -> dict[int, float]:
    """The same of llama.cpp; nothing where its program is not there."""
    if not bench.is_file():
        return {}
    threads, numbers = arguments.threads, ",".join(map(str, arguments.texts))
    room = max(arguments.texts) * (PROMPT + DECODED)
    command = [bench, "-m", file, "-c", room, "-t", threads, "-tb", threads]
    command += ["-npp", PROMPT, "-ntg", DECODED, "-npl", numbers, "--output-format", "jsonl"]
    lines = output(command, environment(threads)).splitlines()
    runs = [json.loads(each) for each in lines if each.startswith("{")]
    return {run["pl"]: run["speed_tg"] for run in runs}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--llama-cpp", type=Path, required=True, help="folder of its programs")
    parser.add_argument("--shape", choices=SHAPES, default="1.1b")
    parser.add_argument("--types", default="Q8_0", help="separated by commas")
    parser.add_argument("--texts", default="1,2,4,8,16,32", help="numbers of texts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="folder for the files, which are kept there")
    arguments = parser.parse_args()
    arguments.types = arguments.types.split(",")
    arguments.texts = [int(each) for each in arguments.texts.split(",")]
    if max(arguments.texts) < 2:
        parser.error("--texts has a number above 1")
    if unknown := sorted(set(arguments.types) - set(TYPES)):
        parser.error(f"no type {', '.join(unknown)}; there are {', '.join(TYPES)}")
    return arguments


if __name__ == "__main__":
    main()
