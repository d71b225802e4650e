"""Embedding with the shape of all-MiniLM-L6-v2 in float32: transformers, a maxtool artifact.

Weights are random and made on the spot; both sides get the same token ids, unpadded, and give the
mean of the tokens. They run in processes of their own that alternate, since two thread pools in one
process spoil each other's figures.

    python benchmarks/embed.py                      # needs the peers extra in this environment
    python benchmarks/embed.py --peer-python PATH   # or in another one
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from checkpoints import machine, usable_cores
from decode import environment

HIDDEN, INNER, LAYERS, HEADS, VOCABULARY, CONTEXT = 384, 1536, 6, 12, 30522, 512
SHAPES = ((1, 16), (1, 128), (32, 32), (32, 128))  # texts, tokens in each
WARM_UP, SECONDS = 2, 2.0
CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": CONTEXT,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor."""
    inside = {
        "attention.self.query": (HIDDEN, HIDDEN),
        "attention.self.key": (HIDDEN, HIDDEN),
        "attention.self.value": (HIDDEN, HIDDEN),
        "attention.output.dense": (HIDDEN, HIDDEN),
        "intermediate.dense": (INNER, HIDDEN),
        "output.dense": (HIDDEN, INNER),
    }
    norms = ("attention.output.LayerNorm", "output.LayerNorm")
    shapes_by_name = {
        "embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
        "embeddings.position_embeddings.weight": (CONTEXT, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        **{f"embeddings.LayerNorm.{part}": (HIDDEN,) for part in ("weight", "bias")},
    }
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}."
        for name, shape in inside.items():
            shapes_by_name |= {f"{prefix}{name}.weight": shape, f"{prefix}{name}.bias": shape[:1]}
        for name in norms:
            shapes_by_name |= {f"{prefix}{name}.{part}": (HIDDEN,) for part in ("weight", "bias")}
    return shapes_by_name


def make(folder: Path) -> None:
    from safetensors.numpy import save_file

    folder.mkdir()
    random = np.random.default_rng(0)
    tensors = {
        name: (random.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)
        for name, shape in shapes().items()
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))


def inputs(texts: int, tokens: int) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(1).integers(1, VOCABULARY, (texts, tokens))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def embed_transformers(folder: Path, threads: int) -> dict[str, float]:
    import torch
    from transformers import AutoModel

    torch.set_num_threads(threads)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()

    def run(texts: int, tokens: int) -> Callable[[], object]:
        tensors = {k: torch.from_numpy(v) for k, v in inputs(texts, tokens).items()}
        return lambda: model(**tensors).last_hidden_state.mean(1)

    with torch.inference_mode():
        return {f"{a}x{b}": milliseconds(run(a, b)) for a, b in SHAPES}


def embed_maxtool(folder: Path, threads: int) -> dict[str, float]:  # noqa: ARG001 - by variable
    sys.path.insert(0, str(folder))
    import run

    model = run.load(folder)

    def call(texts: int, tokens: int) -> Callable[[], object]:
        arrays = inputs(texts, tokens)
        return lambda: model.run("embed", arrays)

    return {f"{a}x{b}": milliseconds(call(a, b)) for a, b in SHAPES}


def milliseconds(call: Callable[[], object]) -> float:
    """The median of what fits into a few seconds."""
    for _ in range(WARM_UP):
        call()
    times: list[float] = []
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


WORKERS = {"transformers": embed_transformers, "maxtool": embed_maxtool}


def measure(python: str, side: str, folder: Path, threads: int) -> dict[str, float]:
    command = [python, __file__, "--worker", side, "--folder", str(folder)]
    done = subprocess.run(
        [*command, "--threads", str(threads)],
        env=environment(threads),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def benchmark(arguments: argparse.Namespace, scratch: Path) -> dict[str, list[dict[str, float]]]:
    checkpoint, artifact = scratch / "checkpoint", scratch / "artifact"
    make(checkpoint)
    command = [sys.executable, "-m", "maxtool", "compile", str(checkpoint), "-o", str(artifact)]
    subprocess.run(command, env=environment(arguments.threads), check=True, stdout=sys.stderr)
    sides = {
        "transformers": (arguments.peer_python, checkpoint),
        "maxtool": (sys.executable, artifact),
    }
    figures: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(arguments.rounds):
        for side, (python, folder) in sides.items():
            figures[side].append(measure(python, side, folder, arguments.threads))
            print(f"{side:>14} {figures[side][-1]}", file=sys.stderr)
    return figures


def report(figures: dict[str, list[dict[str, float]]], threads: int) -> None:
    print(f"machine         {machine()}")
    print(f"threads         {threads} on either side")
    for texts, tokens in SHAPES:
        shape = f"{texts}x{tokens}"
        medians = {
            side: statistics.median(times[shape] for times in found)
            for side, found in figures.items()
        }
        said = ", ".join(f"{side} {value:.2f} ms" for side, value in medians.items())
        ratio = medians["transformers"] / medians["maxtool"]
        print(f"{texts:3} x {tokens:3} tokens {said}; {ratio:.2f} times as fast")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument("--peer-python", default=sys.executable, help="Python with transformers")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.threads < 1 or arguments.rounds < 1:
        parser.error("threads and rounds are at least 1")
    return arguments


def main() -> None:
    arguments = parse()
    if arguments.worker:
        print(json.dumps(WORKERS[arguments.worker](arguments.folder, arguments.threads)))
        return
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
        report(benchmark(arguments, Path(scratch)), arguments.threads)


if __name__ == "__main__":
    main()
