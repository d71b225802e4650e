"""Small eager operations: microseconds of CPU time of each in maxtool, NumPy and PyTorch.

The elements are few, so that what is measured is what a call costs before and after its kernel.
Each side runs in a process of its own, and the processes take turns of a tenth of a second, of
which the medians are shown: the speed of a shared machine changes by the minute. One thread.

    python benchmarks/eager.py                      # PyTorch where it is in this environment
    python benchmarks/eager.py --peer-python PATH   # or in another one

Below the table, what the first calls of a transformer block with new batches and lengths cost, in
CPU seconds and in operations compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from checkpoints import machine

Calls: TypeAlias = dict[str, Callable[[], Any]]

SIZE = 8
TURN, TURNS = 0.1, 15
PAIRS = ((2, 5), (3, 7), (4, 9), (5, 5), (1, 6), (6, 1), (6, 8), (7, 7), (1, 9), (12, 11), (3, 30))
NAMES = (
    "a + b",
    "a + 1.5",
    "a @ b",
    "relu",
    "softmax",
    "sum of rows",
    "reshape",
    "a[0]",
    "concat",
)


def operands() -> tuple[np.ndarray, np.ndarray]:
    """The same numbers on every side."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(2))
    return left, right


def in_maxtool() -> Calls:
    """Tensors that are results of operations, as most are."""
    from maxtool.graph import Tensor, ops

    a, b = (Tensor(array) * 1.0 for array in operands())
    return {
        "a + b": lambda: a + b,
        "a + 1.5": lambda: a + 1.5,
        "a @ b": lambda: a @ b,
        "relu": lambda: ops.relu(a),
        "softmax": lambda: ops.softmax(a),
        "sum of rows": lambda: ops.sum(a, axis=-1),
        "reshape": lambda: a.reshape([SIZE * SIZE]),
        "a[0]": lambda: a[0],
        "concat": lambda: ops.concat([a, b]),
    }


def in_numpy() -> Calls:
    """Time the operations where nothing is a graph; softmax is several calls there."""
    a, b = operands()

    def softmax() -> np.ndarray:
        powers = np.exp(a - a.max(-1, keepdims=True))
        shares: np.ndarray = powers / powers.sum(-1, keepdims=True)
        return shares

    return {
        "a + b": lambda: a + b,
        "a + 1.5": lambda: a + 1.5,
        "a @ b": lambda: a @ b,
        "relu": lambda: np.maximum(a, 0),
        "softmax": softmax,
        "sum of rows": lambda: a.sum(-1, keepdims=True),
        "reshape": lambda: a.reshape(SIZE * SIZE),
        "a[0]": lambda: a[0],
        "concat": lambda: np.concatenate([a, b]),
    }


def in_torch() -> Calls:
    """PyTorch without gradients."""
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    a, b = map(torch.from_numpy, operands())
    return {
        "a + b": lambda: a + b,
        "a + 1.5": lambda: a + 1.5,
        "a @ b": lambda: a @ b,
        "relu": lambda: torch.relu(a),
        "softmax": lambda: torch.softmax(a, -1),
        "sum of rows": lambda: a.sum(-1, keepdim=True),
        "reshape": lambda: a.reshape(SIZE * SIZE),
        "a[0]": lambda: a[0],
        "concat": lambda: torch.cat([a, b]),
    }


SIDES = {"maxtool": in_maxtool, "numpy": in_numpy, "torch": in_torch}


def serve(side: str) -> None:
    """Answer each name on stdin with the microseconds of one call, on stdout."""
    calls = SIDES[side]()
    for call in calls.values():
        call()
    print("ready", flush=True)
    for line in sys.stdin:
        call, count = calls[line.strip()], 0
        start = time.process_time()
        while time.process_time() - start < TURN:
            for _ in range(100):
                call()
            count += 100
        print(1e6 * (time.process_time() - start) / count, flush=True)


def start(side: str, python: str) -> subprocess.Popen[str] | None:
    """A process for one side; None where its package is missing."""
    environment = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"), "1")
    process = subprocess.Popen(
        [python, __file__, "--side", side],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | environment,
    )
    assert process.stdout is not None
    return process if process.stdout.readline().strip() == "ready" else None


def ask(process: subprocess.Popen[str], name: str) -> float:
    """The microseconds of one call in this turn."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(name, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def measure(processes: dict[str, subprocess.Popen[str]]) -> dict[str, dict[str, float]]:
    """Medians by operation and side."""
    results: dict[str, dict[str, float]] = {}
    for name in NAMES:
        turns = [
            {side: ask(process, name) for side, process in processes.items()} for _ in range(TURNS)
        ]
        results[name] = {
            side: statistics.median(turn[side] for turn in turns) for side in processes
        }
    return results


def block() -> None:
    """Print what each new pair of sizes costs a transformer block, as JSON."""
    from maxtool.compiler import eager
    from maxtool.graph import Tensor, ops
    from maxtool.nn.eager import Linear, RMSNorm
    from maxtool.nn.eager.multihead_attention import MultiheadAttention

    build, compiled = eager.Program, [0]

    def counted(*arguments: Any) -> Any:  # noqa: ANN401
        compiled[0] += 1
        return build(*arguments)

    eager.Program = counted  # type: ignore[assignment, misc]
    width = 64
    attention, norm, other = (
        MultiheadAttention(4, width, causal=True),
        RMSNorm(width),
        RMSNorm(width),
    )
    up, down = Linear(width, 4 * width), Linear(4 * width, width)
    figures = []
    for batch, seq in PAIRS:
        before, start = compiled[0], time.process_time()
        x = Tensor(np.ones((batch, seq, width), np.float32))
        x = x + attention(norm(x))
        (x + down(ops.silu(up(other(x))))).to_numpy()
        figures.append((time.process_time() - start, compiled[0] - before))
    print(json.dumps(figures))


def main() -> None:
    """Run every side, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", choices=[*SIDES, "block"], help=argparse.SUPPRESS)
    parser.add_argument("--peer-python", default=sys.executable, help="the Python that has torch")
    options = parser.parse_args()
    if options.side:
        return block() if options.side == "block" else serve(options.side)
    print(machine())
    pythons = {side: options.peer_python if side == "torch" else sys.executable for side in SIDES}
    started = {side: start(side, python) for side, python in pythons.items()}
    processes = {side: process for side, process in started.items() if process is not None}
    print(f"{'microseconds':14}" + "".join(f"{side:>10}" for side in processes))
    for name, row in measure(processes).items():
        print(f"{name:14}" + "".join(f"{row[side]:10.1f}" for side in processes))
    for one in processes.values():
        one.terminate()
        one.wait()
    command = [sys.executable, __file__, "--side", "block"]
    figures = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    for (batch, seq), (seconds, count) in zip(PAIRS, figures, strict=True):
        print(f"batch {batch:2}, length {seq:2}: {seconds:6.2f} s of CPU, {count} compiled")
    return None


if __name__ == "__main__":
    main()
