"""Embedding with the shape of all-MiniLM-L6-v2 in float32: maxtool beside three peers.

Weights are random and made on the spot. All sides get the same token ids, unpadded, give the mean
of the tokens, and have to agree. onnxruntime and OpenVINO read what PyTorch exports; OpenVINO is
told float32, as it would take bfloat16 by itself where the CPU has it. Sides run in processes of
their own that alternate, since two thread pools in one process spoil each other's figures.

    python benchmarks/embed.py                      # needs the peers extra in this environment
    python benchmarks/embed.py --peer-python PATH   # or in another one, with onnxruntime and onnx
    python benchmarks/embed.py --openvino-python PATH --threads 1 --cpu-time

onnxruntime and OpenVINO may be missing, which is then said; PyTorch, transformers and onnx may not:
they write what both read. ``--cpu-time`` counts the processor time of a side instead of the time
that passes: on a machine that others keep busy it is the steadier figure, with one thread the only
one that means something.
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
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from checkpoints import machine, usable_cores
from decode import environment

HIDDEN, INNER, LAYERS, HEADS, VOCABULARY, CONTEXT = 384, 1536, 6, 12, 30522, 512
SHAPES = ((1, 16), (1, 128), (8, 128), (32, 32))  # texts, tokens in each
WARM_UP, SECONDS = 2, 2.0
EXPORT, EXPORTED = "export", "model.onnx"
FASTEST = ("onnxruntime", "openvino")  # runtimes that optimise the whole graph
SHOWN, TOLERANCE = 4, 1e-4  # numbers of the first vector that sides compare
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


# What a side computes for some inputs: a vector for each text.
Embed: TypeAlias = "Callable[[dict[str, np.ndarray]], np.ndarray]"


def load_transformers(folder: Path, threads: int) -> Embed:
    """PyTorch in eager mode."""
    import torch
    from transformers import AutoModel

    torch.set_num_threads(threads)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False).eval()

    @torch.inference_mode()
    def embed(arrays: dict[str, np.ndarray]) -> np.ndarray:
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return model(**tensors).last_hidden_state.mean(1).numpy()

    return embed


def load_onnxruntime(folder: Path, threads: int) -> Embed:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(folder / EXPORTED, options, providers=providers)
    return lambda arrays: session.run(None, arrays)[0]


def load_openvino(folder: Path, threads: int) -> Embed:
    import openvino

    options = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    model = openvino.Core().compile_model(folder / EXPORTED, "CPU", options)
    request = model.create_infer_request()
    return lambda arrays: request.infer(arrays)[0]


def load_maxtool(folder: Path, threads: int) -> Embed:  # noqa: ARG001 - by variable
    sys.path.insert(0, str(folder))
    import run

    model = run.load(folder)
    return lambda arrays: model.run("embed", arrays)["embeddings"]


def export(folder: Path) -> None:
    """Write the model as ONNX, with the attention that onnxruntime knows how to fuse."""
    import torch
    from transformers import AutoModel

    options = {"attn_implementation": "eager", "add_pooling_layer": False}
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, **options).eval()

    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
            return self.model(**inputs).last_hidden_state.mean(1)

    ids = torch.ones((2, 16), dtype=torch.int64)
    names = ["input_ids", "attention_mask"]
    torch.onnx.export(
        Mean(),
        (ids, torch.ones_like(ids)),
        folder / EXPORTED,
        input_names=names,
        dynamic_axes={name: {0: "batch", 1: "length"} for name in names},
        dynamo=False,
    )


LOADERS = {
    "maxtool": load_maxtool,
    "onnxruntime": load_onnxruntime,
    "openvino": load_openvino,
    "transformers": load_transformers,
}


def measured(side: str, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Milliseconds and the first numbers of the first vector, for each shape."""
    embed = LOADERS[side](arguments.folder, arguments.threads)
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    figures = {}
    for texts, tokens in SHAPES:
        arrays = inputs(texts, tokens)
        first = np.asarray(embed(arrays))[0, :SHOWN].tolist()
        figures[f"{texts}x{tokens}"] = [milliseconds(partial(embed, arrays), clock), *first]
    return figures


def milliseconds(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """The median of what fits into a few seconds."""
    for _ in range(WARM_UP):
        call()
    times: list[float] = []
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS or len(times) < 3:
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times) * 1000


Figures: TypeAlias = "dict[str, list[float]]"


def worker(
    python: str, side: str, folder: Path, arguments: argparse.Namespace
) -> subprocess.CompletedProcess[str]:
    """Run this script as one side."""
    options = ["--threads", str(arguments.threads), *(["--cpu-time"] if arguments.cpu_time else [])]
    return subprocess.run(
        [python, __file__, "--worker", side, "--folder", str(folder), *options],
        env=environment(arguments.threads),
        check=False,
        capture_output=True,
        text=True,
    )


def has(python: str, package: str) -> bool:
    """Return whether a Python can import a package."""
    done = subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False)
    return done.returncode == 0


def benchmark(arguments: argparse.Namespace, scratch: Path) -> dict[str, list[Figures]]:
    """The figures of each side, round by round; none where its package is missing."""
    checkpoint, artifact = scratch / "checkpoint", scratch / "artifact"
    make(checkpoint)
    command = [sys.executable, "-m", "maxtool", "compile", str(checkpoint), "-o", str(artifact)]
    subprocess.run(command, env=environment(arguments.threads), check=True, stdout=sys.stderr)
    pythons = dict.fromkeys(LOADERS, arguments.peer_python)
    pythons |= {"maxtool": sys.executable, "openvino": arguments.openvino_python}
    here = [side for side, python in pythons.items() if side == "maxtool" or has(python, side)]
    checked(worker(arguments.peer_python, EXPORT, checkpoint, arguments))
    figures: dict[str, list[Figures]] = {side: [] for side in pythons}
    for _ in range(arguments.rounds):
        for side in here:
            folder = artifact if side == "maxtool" else checkpoint
            done = checked(worker(pythons[side], side, folder, arguments))
            figures[side].append(json.loads(done.stdout.splitlines()[-1]))
            times = {shape: f"{figure:.2f}" for shape, (figure, *_) in figures[side][-1].items()}
            print(f"{side:>14} {times}", file=sys.stderr)
    return figures


def checked(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """Return what a side printed; the benchmark ends where one fails."""
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return done


def report(figures: dict[str, list[Figures]], arguments: argparse.Namespace) -> None:
    """Print a line for each shape: medians, and the faster of two peers divided by ours."""
    print(f"machine         {machine()}")
    clock = "processor time" if arguments.cpu_time else "time that passes"
    print(f"threads         {arguments.threads} on each side; milliseconds of {clock}")
    for texts, tokens in SHAPES:
        shape = f"{texts}x{tokens}"
        medians = {
            side: statistics.median(times[shape][0] for times in rounds)
            for side, rounds in figures.items()
            if rounds
        }
        first = [times[shape][1:] for rounds in figures.values() for times in rounds]
        if not np.allclose(first, first[0], atol=TOLERANCE):
            raise SystemExit(f"{shape}: sides do not agree: {first}")
        listed = ", ".join(
            f"{side} {medians[side]:.2f}" if side in medians else f"{side} not installed"
            for side in figures
        )
        fastest = min((medians[side] for side in FASTEST if side in medians), default=None)
        ratio = (
            "" if fastest is None else f"; {fastest / medians['maxtool']:.2f} of the faster peer"
        )
        print(f"{texts:3} x {tokens:3} tokens {listed}{ratio}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument(
        "--peer-python",
        default=sys.executable,
        help="Python with transformers, onnx and onnxruntime",
    )
    parser.add_argument("--openvino-python", default=sys.executable, help="Python with openvino")
    parser.add_argument("--cpu-time", action="store_true", help="count processor time")
    parser.add_argument("--worker", choices=[EXPORT, *LOADERS], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.threads < 1 or arguments.rounds < 1:
        parser.error("threads and rounds are at least 1")
    return arguments


def main() -> None:
    arguments = parse()
    if arguments.worker == EXPORT:
        export(arguments.folder)
        return
    if arguments.worker:
        print(json.dumps(measured(arguments.worker, arguments)))
        return
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
        report(benchmark(arguments, Path(scratch)), arguments)


if __name__ == "__main__":
    main()
