"""Decode against context and prefill against prompt length, beside llama.cpp: a table, a picture.

Weights are random, of the usual size, and both sides read the same file. A prompt of each length is
read, then some tokens are made behind it. Sides run in processes of their own that alternate;
figures are medians over the rounds, in tokens a second.

    python benchmarks/curves.py --llama-cpp BUILD/bin --type Q4_K_M --svg curves.svg
    python benchmarks/curves.py --llama-cpp BUILD/bin --peer ik_llama=OTHER/bin/llama-bench

``BUILD/bin`` is as for ``llama_cpp.py``, whose files ``--work FOLDER`` shares.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from functools import partial
from pathlib import Path

from checkpoints import machine
from decode import environment
from line_chart import Panel, draw
from llama_cpp import SHAPES, TYPES, Side, add_peers, checkpoint, compiled, output, peers_of

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
DECODED = 16

# Runs in the artifact's folder; prints tokens a second of each prompt, and of what follows it.
WORKER = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import run
decoded, *lengths = map(int, sys.argv[2:])
model = run.load()

def measure(length):
    ids = [3 + 7 * i % 900 for i in range(length)]
    began = time.perf_counter()
    tokens = iter(model.generate(ids, max_tokens=decoded + 1))
    next(tokens)
    middle = time.perf_counter()
    count = sum(1 for _ in tokens)
    return length / (middle - began), count / (time.perf_counter() - middle)

measure(lengths[0])
print(json.dumps({length: measure(length) for length in lengths}))
"""

# By question and length.
Figures = dict[str, float]


def main() -> None:
    """Measure, and print a table; draw it where a file is named."""
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
        work = arguments.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        sides = sides_of(arguments, work)
        seen: dict[tuple[str, str], list[float]] = defaultdict(list)
        for _ in range(arguments.rounds):
            for side in sides:
                for question, figure in side.speeds().items():
                    seen[side.name, question].append(figure)
    panels = [
        panel(kind, title, sides, seen, arguments.lengths)
        for kind, title in (("decode", "context, tokens"), ("prefill", "prompt, tokens"))
    ]
    model = f"{arguments.shape} Llama shape, {arguments.type}"
    facts = f"{model}, threads: {arguments.threads}; {machine()}"
    print(facts)
    for each in panels:
        print(table(each))
    if arguments.svg:
        arguments.svg.write_text(draw(panels, facts), encoding="utf-8")


def sides_of(arguments: argparse.Namespace, work: Path) -> list[Side]:
    """The artifact and each peer, all with the same file."""
    source, context = (
        checkpoint(arguments.type, work, arguments),
        max(arguments.lengths) + 2 * DECODED,
    )
    artifact = work / f"{source.stem}-{context}-{arguments.target.replace(':', '-')}"
    compiled(source, artifact, arguments, context)
    env = environment(arguments.threads)
    sides = [Side("maxtool", partial(ours, artifact, arguments.lengths, env))]
    for name, bench in peers_of(arguments).items():
        sides.append(Side(name, partial(theirs, bench, source, arguments, env)))
    return sides


def ours(artifact: Path, lengths: list[int], env: dict[str, str]) -> Figures:
    """Figures of the artifact."""
    figures = json.loads(output([sys.executable, "-c", WORKER, artifact, DECODED, *lengths], env))
    kinds = ("prefill", "decode")
    return {
        f"{kind} {length}": speed
        for length, speeds in figures.items()
        for kind, speed in zip(kinds, speeds, strict=True)
    }


def theirs(
    bench: Path, source: Path, arguments: argparse.Namespace, env: dict[str, str]
) -> Figures:
    """Figures of a ``llama-bench``; forks without ``--n-depth`` have ``-gp`` for the same."""
    command = [bench, "-m", source, "-t", arguments.threads, "-o", "json", "-r", 1]
    lengths = ",".join(map(str, arguments.lengths))
    figures = {
        f"prefill {each['n_prompt']}": each["avg_ts"]
        for each in json.loads(output([*command, "-p", lengths, "-n", 0], env))
    }
    if "--n-depth" in output([bench, "--help"], env):
        decoding = ["-p", 0, "-n", DECODED, "-d", lengths]
        depth = "n_depth"
    else:
        pairs = [("-gp", f"{length},{DECODED}") for length in arguments.lengths]
        decoding = ["-p", 0, "-n", 0, *(word for pair in pairs for word in pair)]
        depth = "n_prompt"
    runs = json.loads(output([*command, *decoding], env))
    return figures | {f"decode {each[depth]}": each["avg_ts"] for each in runs}


def panel(
    kind: str,
    x: str,
    sides: list[Side],
    seen: dict[tuple[str, str], list[float]],
    lengths: list[int],
) -> Panel:
    """Medians of one question for each side."""
    lines = {
        side.name: [
            (length, statistics.median(seen[side.name, f"{kind} {length}"])) for length in lengths
        ]
        for side in sides
    }
    return Panel(f"{kind}, tokens/s", x, lines)


def table(panel: Panel) -> str:
    """The panel in Markdown; the artifact's ratio to each peer in brackets."""
    own = dict(panel.lines["maxtool"])
    head = [panel.title, *(f"{x:g}" for x in panel.columns)]
    rows = [head, ["---"] * len(head)]
    for name, line in panel.lines.items():
        cells = [
            f"{y:.4g}" + ("" if name == "maxtool" else f" ({own[x] / y:.2f})") for x, y in line
        ]
        rows.append([name, *cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_peers(parser)
    parser.add_argument("--shape", choices=SHAPES, default="1.1b")
    parser.add_argument("--type", choices=TYPES, default="Q4_K_M")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="with commas")
    parser.add_argument("--target", default="cpu", help="as for maxtool compile")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--svg", type=Path, help="file for a picture")
    parser.add_argument("--work", type=Path, help="folder for the files, which are kept there")
    arguments = parser.parse_args()
    arguments.lengths = sorted(map(int, arguments.lengths.split(",")))
    return arguments


if __name__ == "__main__":
    main()
