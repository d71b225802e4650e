"""CPU kernels beside NumPy: GFLOP/s, GB/s of weights or cache read, and the ratio.

    python benchmarks/kernels.py [--seconds 1] [--threads N] [--only linear]

Each side runs in a process of its own, since two pools of threads in one process ruin both; the
two take turns within a second, since the speed of a shared machine changes by the minute. Only the
ratio means much. OPENBLAS_* settings are removed, so that NumPy uses the widest instructions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

TURN = 0.1  # seconds one side measures before the other does


@dataclass(frozen=True)
class Case:
    """One measurement: a kernel and its sizes."""

    kernel: str
    sizes: tuple[int, ...]
    dtype: str = "float32"

    @property
    def name(self) -> str:
        return f"{self.kernel} {'x'.join(map(str, self.sizes))} {self.dtype}"

    @property
    def flops(self) -> float:
        if self.kernel == "linear":
            rows, n, k = self.sizes
            return 2.0 * rows * n * k
        if self.kernel == "attention":
            seq, heads, _, d, context = self.sizes
            return 4.0 * heads * d * sum(context - seq + i + 1 for i in range(seq))
        return 4.0 * np.prod(self.sizes)

    @property
    def bytes(self) -> float:
        if self.kernel == "linear":
            return float(self.sizes[1] * self.sizes[2] * np.dtype(self.storage).itemsize)
        if self.kernel == "attention":
            return 8.0 * self.sizes[2] * self.sizes[3] * self.sizes[4]
        return 8.0 * np.prod(self.sizes)

    @property
    def storage(self) -> str:
        return "uint16" if self.dtype == "bfloat16" else self.dtype


LINEAR = [(576, 576), (1536, 576), (576, 1536), (5632, 2048), (49152, 576)]
CASES = [
    *(Case("linear", (rows, n, k)) for n, k in LINEAR for rows in (1, 8, 128, 512)),
    *(Case("linear", (1, 5632, 2048), dtype) for dtype in ("float16", "bfloat16")),
    *(Case("linear", (512, 5632, 2048), dtype) for dtype in ("float16", "bfloat16")),
    *(
        Case("attention", (seq, 9, 3, 64, context))
        for seq, context in ((1, 512), (1, 2048), (512, 512))
    ),
    Case("rms_norm", (512, 576)),
    Case("silu_mul", (512, 1536)),
]


def arrays(case: Case) -> list[np.ndarray]:
    """The inputs, the same in both processes."""
    rng = np.random.default_rng(0)

    def make(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype="f4")

    if case.kernel == "linear":
        rows, n, k = case.sizes
        return [make(rows, k), make(n, k)]
    if case.kernel == "attention":
        seq, heads, kv, d, context = case.sizes
        return [make(1, seq, heads, d), make(1, kv, d, context), make(1, kv, context, d)]
    if case.kernel == "rms_norm":
        return [make(*case.sizes), make(case.sizes[-1])]
    return [make(*case.sizes), make(*case.sizes)]


def in_numpy(case: Case) -> Callable[[], Any]:
    """The same work by NumPy; short weights are float32 here: it has no fast product of them."""
    a, w, *rest = arrays(case)
    if case.kernel == "linear":
        return lambda: a @ w.T
    if case.kernel == "rms_norm":
        return lambda: a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-5) * w
    if case.kernel == "silu_mul":
        return lambda: a / (1 + np.exp(-a)) * w
    seq, heads, kv, d, context = case.sizes
    hidden = np.triu(np.full((seq, context), -np.inf, "f4"), context - seq + 1)

    def attention() -> np.ndarray:
        q = a[0].reshape(seq, kv, heads // kv, d).transpose(1, 2, 0, 3) * np.float32(d**-0.5)
        scores = q @ w[0][:, None] + hidden
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return (weights / weights.sum(-1, keepdims=True)) @ rest[0][0][:, None]

    return attention


def in_maxtool(case: Case) -> Callable[[], Any]:
    """The compiled kernel, its inputs laid out as it wants them."""
    import ml_dtypes
    import tvm

    from maxtool.compiler.cpu_target import cpu_target
    from maxtool.compiler.kernels.cpu import builder
    from maxtool.compiler.kernels.cpu.attention import attention
    from maxtool.compiler.kernels.cpu.backend import CpuBackend
    from maxtool.compiler.kernels.cpu.linear import linear
    from maxtool.compiler.kernels.cpu.norm import rms_norm
    from maxtool.compiler.kernels.kernel_options import SILU_MUL
    from maxtool.compiler.kernels.pointwise import pointwise
    from maxtool.compiler.packing import pack_linear

    target = cpu_target()
    inputs = arrays(case)
    out = np.empty_like(inputs[0])
    if case.kernel == "linear":
        rows, n, _ = case.sizes
        dtype = ml_dtypes.bfloat16 if case.dtype == "bfloat16" else case.dtype
        inputs[1] = pack_linear(inputs[1].astype(dtype), target.tile.nr).view(case.storage)
        out = np.empty((rows, n), "f4")
        function = linear(target.tile, case.dtype)
    elif case.kernel == "attention":
        seq, heads, kv, d, context = case.sizes
        inputs.append(np.array([context - seq], "i4"))
        function = attention(target.tile, heads, kv, d, d**-0.5)
    elif case.kernel == "rms_norm":
        function = rms_norm(target.tile, case.sizes[-1], 1e-5)
    else:
        function = pointwise(CpuBackend(target.tile), case.sizes[-1], 2, SILU_MUL)
    run = builder.build({"kernel": function}, target.tvm)["kernel"]
    tensors = [tvm.runtime.tensor(array) for array in (*inputs, out)]
    return lambda: run(*tensors)


SIDES = {"numpy": in_numpy, "maxtool": in_maxtool}


def serve(side: str) -> None:
    """Answer on stdout, a line each: a case makes it ready, a number of seconds measures it."""
    run: Callable[[], Any] = lambda: None  # noqa: E731
    for line in sys.stdin:
        order = json.loads(line)
        if isinstance(order, dict):
            run = SIDES[side](Case(order["kernel"], tuple(order["sizes"]), order["dtype"]))
            run()
            print("0", flush=True)
            continue
        best, end = 1e9, time.perf_counter() + order
        while time.perf_counter() < end:
            start = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - start)
        print(json.dumps(best), flush=True)


def ask(process: subprocess.Popen[str], order: object) -> float:
    """Send one line, wait for the answer."""
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(json.dumps(order) + "\n")
    stdin.flush()
    return float(stdout.readline())


def start(side: str, threads: int) -> subprocess.Popen[str]:
    """A process for one side; idle threads sleep rather than spin, and none is pinned."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("OPENBLAS")
    }
    environment |= {
        "OPENBLAS_NUM_THREADS": str(threads),
        "TVM_NUM_THREADS": str(threads),
        "TVM_THREAD_POOL_SPIN_COUNT": "0",
        "TVM_BIND_THREADS": "0",
    }
    command = [sys.executable, __file__, "--side", side]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def measure(
    case: Case, processes: dict[str, subprocess.Popen[str]], seconds: float
) -> dict[str, float]:
    """The best time of each side, in turns."""
    for process in processes.values():
        ask(process, asdict(case))
    best = dict.fromkeys(processes, 1e9)
    for _ in range(max(1, round(seconds / TURN))):
        for side, process in processes.items():
            best[side] = min(best[side], ask(process, TURN))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=0.5, help="per case and side")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        serve(options.side)
        return
    processes = {side: start(side, options.threads) for side in SIDES}
    print(f"{options.threads} threads; best of {options.seconds} s each, in turns")
    print(f"{'':32}{'maxtool':>20}{'numpy':>20}  speed-up")
    for case in (case for case in CASES if options.only in case.name):
        best = measure(case, processes, options.seconds)
        cells = [
            f"{case.flops / best[side] / 1e9:8.1f} GF{case.bytes / best[side] / 1e9:6.1f} GB/s"
            for side in ("maxtool", "numpy")
        ]
        print(f"{case.name:32}{cells[0]:>20}{cells[1]:>20}  {best['numpy'] / best['maxtool']:7.2f}")
    for process in processes.values():
        if process.stdin:
            process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
