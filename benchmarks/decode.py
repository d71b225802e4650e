"""Decode speed of a 135M-parameter Llama shape in float32: eager transformers, a maxtool artifact.

Weights are random and made on the spot. The two run in processes of their own that alternate, since
two thread pools in one process spoil each other's figures; every process generates from a prompt of
one token, so that all its work is decoding.

    python benchmarks/decode.py                      # needs the peers extra in this environment
    python benchmarks/decode.py --peer-python PATH   # or in another one

Environment variables that begin with OPENBLAS_ are removed: some machines set a core type there
that halves the speed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from checkpoints import Shape, machine, make, usable_cores

MODEL = Shape(49152, hidden=576, inner=1536, layers=30, heads=9, kv_heads=3)
WARM_UP = 8
FIRST_TOKEN = 1


def decode_transformers(folder: Path, tokens: int, threads: int) -> float:
    """Tokens a second of a plain greedy loop with transformers' own cache, in eager mode."""
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def generate(count: int) -> None:
        ids, cache = torch.tensor([[FIRST_TOKEN]]), DynamicCache(config=model.config)
        for _ in range(count):
            logits = model(input_ids=ids, past_key_values=cache, use_cache=True).logits
            ids = logits[:, -1:].argmax(-1)

    with torch.inference_mode():
        return rate(generate, tokens)


def decode_maxtool(folder: Path, tokens: int, threads: int) -> float:  # noqa: ARG001 - by variable
    """Tokens a second of the artifact's loader, which takes its threads from the environment."""
    sys.path.insert(0, str(folder))
    import run

    model = run.load(folder)

    def generate(count: int) -> None:
        produced = sum(1 for _ in model.generate([FIRST_TOKEN], max_tokens=count))
        if produced != count:
            raise SystemExit(f"the artifact made {produced} tokens instead of {count}")

    return rate(generate, tokens)


def rate(generate, tokens: int) -> float:  # noqa: ANN001
    generate(WARM_UP)
    began = time.perf_counter()
    generate(tokens)
    return tokens / (time.perf_counter() - began)


WORKERS = {"transformers": decode_transformers, "maxtool": decode_maxtool}


def measure(python: str, side: str, folder: Path, arguments: argparse.Namespace) -> float:
    """One figure, from a process of its own."""
    command = [python, __file__, "--worker", side, "--folder", str(folder)]
    command += ["--tokens", str(arguments.tokens), "--threads", str(arguments.threads)]
    done = subprocess.run(
        command, env=environment(arguments.threads), check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout)


# Without byte code of its own, each process would compile what it imports.
DROPPED = ("OPENBLAS_", "PYTHONDONTWRITEBYTECODE")


def environment(threads: int) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(DROPPED)}
    return kept | {"OMP_NUM_THREADS": str(threads), "TVM_NUM_THREADS": str(threads)}


def compile_artifact(checkpoint: Path, artifact: Path, threads: int) -> None:
    command = [sys.executable, "-m", "maxtool", "compile", str(checkpoint), "-o", str(artifact)]
    command += ["--context", str(MODEL.context)]
    subprocess.run(command, env=environment(threads), check=True, stdout=sys.stderr)


def benchmark(arguments: argparse.Namespace, scratch: Path) -> dict[str, list[float]]:
    checkpoint, artifact = scratch / "checkpoint", scratch / "artifact"
    make(checkpoint, MODEL)
    sides = {"transformers": (arguments.peer_python, checkpoint)}
    if not arguments.peer_only:
        compile_artifact(checkpoint, artifact, arguments.threads)
        sides["maxtool"] = (sys.executable, artifact)
    figures: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(arguments.rounds):
        for side, (python, folder) in sides.items():
            figures[side].append(measure(python, side, folder, arguments))
            print(f"{side:>14} {figures[side][-1]:8.1f} tokens/s", file=sys.stderr)
    return figures


def report(figures: dict[str, list[float]], arguments: argparse.Namespace) -> None:
    print(f"machine         {machine()}")
    print(f"threads         {arguments.threads} on either side")
    print(f"model           135M Llama shape, float32; {arguments.tokens} tokens after one")
    for side, values in figures.items():
        print(f"{side:15} {statistics.median(values):.1f} tokens/s, median of {listed(values)}")
    if "maxtool" in figures:
        medians = {side: statistics.median(values) for side, values in figures.items()}
        print(f"ratio           {medians['maxtool'] / medians['transformers']:.2f}")


def listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=128, help="tokens each process generates")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument("--peer-python", default=sys.executable, help="Python with transformers")
    parser.add_argument("--peer-only", action="store_true", help="measure transformers alone")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not 0 < arguments.tokens < MODEL.context or arguments.threads < 1 or arguments.rounds < 1:
        parser.error(f"threads and rounds are at least 1, tokens 1 to {MODEL.context - 1}")
    return arguments


def main() -> None:
    arguments = parse()
    if arguments.worker:
        print(WORKERS[arguments.worker](arguments.folder, arguments.tokens, arguments.threads))
        return
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
        report(benchmark(arguments, Path(scratch)), arguments)


if __name__ == "__main__":
    main()
