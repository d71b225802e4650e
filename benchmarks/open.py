"""Opening and listing large checkpoints beside the safetensors and gguf packages.

    python benchmarks/open.py [--rounds 7] [--vocabulary 150000]

Two checkpoints: a sharded model of over 100 GB, whose files are sparse, so that they take no space,
and a GGUF file with a large vocabulary and its merges. Each reader opens one and takes name, type
and shape of every tensor, in a process of its own, in turns. `open` is that alone, `process` has
the start of Python and imports in it; memory is the most anonymous memory (RssAnon) seen from
outside, which leaves out mapped files. Medians.
"""

from __future__ import annotations

import argparse
import json
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from checkpoints import Shape, machine, make_sparse

LARGE = Shape(128256, 8192, 28672, 60, 64, 8)  # 107 GB in bfloat16
Listing = list[tuple[str, str, tuple[int, ...]]]


def make_gguf(path: Path, vocabulary: int) -> None:
    """A GGUF file with a vocabulary, merges, scores and types, and a few hundred tensors."""
    import numpy as np

    from maxtool.dtype import DType
    from maxtool.quantization import QuantizationEncoding
    from maxtool.weights import TensorSpec
    from maxtool.weights.formats import gguf

    words = [f"token{number:x}" for number in range(vocabulary)]
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": np.ones(vocabulary, np.int32),
        "tokenizer.ggml.scores": np.zeros(vocabulary, np.float32),
        "tokenizer.ggml.merges": [f"{word[:4]} {word[4:]}" for word in words],
    }
    encoding = QuantizationEncoding.Q4_K
    specs = [
        TensorSpec(f"blk.{layer}.{part}.weight", DType.float32, (4096, 4096), encoding)
        for layer in range(32)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_gate", "ffn_down")
    ]
    header, offsets = gguf.header(specs, metadata)
    with path.open("wb") as stream:
        stream.write(header)
        stream.truncate(offsets[-1])


def with_maxtool() -> Callable[[Path], Listing]:
    from maxtool.weights import open_checkpoint

    def listing(path: Path) -> Listing:
        tensors = open_checkpoint(path).tensors.values()
        return [(tensor.name, tensor.type_name, tensor.shape) for tensor in tensors]

    return listing


def with_safetensors() -> Callable[[Path], Listing]:
    import safetensors

    def listing(path: Path) -> Listing:
        index = json.loads((path / "model.safetensors.index.json").read_text())
        entries: Listing = []
        for name in sorted(set(index["weight_map"].values())):
            with safetensors.safe_open(path / name, framework="numpy") as file:
                for tensor in file.keys():  # noqa: SIM118 - it is no mapping
                    view = file.get_slice(tensor)
                    entries.append((tensor, view.get_dtype(), tuple(view.get_shape())))
        return entries

    return listing


def with_gguf() -> Callable[[Path], Listing]:
    from gguf import GGUFReader

    def listing(path: Path) -> Listing:
        return [
            (tensor.name, tensor.tensor_type.name, tuple(map(int, reversed(tensor.shape))))
            for tensor in GGUFReader(path).tensors
        ]

    return listing


READERS = {"maxtool": with_maxtool, "safetensors": with_safetensors, "gguf": with_gguf}


def work(reader: str, path: Path) -> None:
    """One measurement, in the process started for it."""
    listing = READERS[reader]()
    start = time.perf_counter()
    entries = listing(path)
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, len(entries), hash(tuple(sorted(entries)))]), flush=True)
    sys.stdin.readline()  # memory is looked at once more


def anonymous(pid: int) -> float:
    """Anonymous resident memory in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next((line for line in status.splitlines() if line.startswith("RssAnon")), "x 0")
    return int(line.split()[1]) / 1000


def measure(reader: str, path: Path) -> tuple[float, float, float, object]:
    """Seconds to open, seconds of the process, peak MB, and what was found."""
    command = [sys.executable, __file__, "--reader", reader, "--path", str(path)]
    environment = {"PYTHONHASHSEED": "0", "PYTHONPATH": str(Path(__file__).parents[1])}
    start = time.perf_counter()
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    peak = 0.0
    while not select.select([process.stdout], [], [], 0.002)[0]:
        peak = max(peak, anonymous(process.pid))
    seconds, *results = json.loads(process.stdout.readline())
    took = time.perf_counter() - start
    peak = max(peak, anonymous(process.pid))
    process.stdin.close()
    process.wait()
    return seconds, took, peak, results


def compare(title: str, path: Path, peer: str, rounds: int) -> None:
    results: dict[str, list[tuple[float, float, float]]] = {"maxtool": [], peer: []}
    listings = set()
    for _ in range(rounds):
        for reader, times in results.items():
            *numbers, listing = measure(reader, path)
            times.append(tuple(numbers))  # type: ignore[arg-type]
            listings.add(str(listing))
    assert len(listings) == 1, "the readers do not agree"
    print(f"\n{title}")
    print(f"{'':14}{'open':>10}{'process':>10}{'RssAnon':>10}")
    medians = {
        reader: [statistics.median(column) for column in zip(*times, strict=True)]
        for reader, times in results.items()
    }
    for reader, (opened, process, memory) in medians.items():
        print(f"{reader:14}{opened:8.3f} s{process:8.3f} s{memory:7.0f} MB")
    ratios = [other / own for own, other in zip(medians["maxtool"], medians[peer], strict=True)]
    print(f"{peer + '/maxtool':14}" + "".join(f"{ratio:9.1f}x" for ratio in ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--vocabulary", type=int, default=150_000)
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        work(options.reader, options.path)
        return
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        total = make_sparse(folder / "large", LARGE)
        make_gguf(folder / "large.gguf", options.vocabulary)
        title = f"sharded safetensors of {total / 1e9:.0f} GB, {len(LARGE.tensors)} tensors"
        compare(title, folder / "large", "safetensors", options.rounds)
        title = f"GGUF with {options.vocabulary} tokens and as many merges"
        compare(title, folder / "large.gguf", "gguf", options.rounds)


if __name__ == "__main__":
    main()
