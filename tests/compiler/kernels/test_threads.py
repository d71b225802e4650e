"""Kernels on any number of threads: each output is computed by one of them, whoever it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from maxtool.compiler.kernels.cpu.attention import attention
from maxtool.compiler.kernels.cpu.integer_dot import instruction_set
from maxtool.compiler.kernels.cpu.linear import linear
from maxtool.compiler.kernels.cpu.norm import rms_norm
from maxtool.compiler.kernels.cpu.quantized_embedding import quantized_embedding
from maxtool.compiler.kernels.cpu.quantized_experts import quantized_expert_linear
from maxtool.compiler.kernels.cpu.quantized_linear import quantized_linear
from maxtool.compiler.quantized_packing import pack_quantized
from maxtool.quantization import QuantizationEncoding

from .harness import HOST, TILE, call, compiled, normal
from .quantized_numbers import blocks_of

E = QuantizationEncoding
ROOT = Path(__file__).resolve().parents[3]
MACHINE = instruction_set(HOST)
THREADS = (1, 2, 5)
N, K = 211, 512


def outputs() -> dict[str, np.ndarray]:
    """Outputs of each kernel with a loop for threads, for one row and for many."""
    blocks = blocks_of(0, E.Q4_K, N, K)
    packed = pack_quantized(blocks, E.Q4_K)
    experts = np.stack([packed, packed[::-1]])
    weights = normal(1, -(-N // TILE.nr), K, TILE.nr)
    results = {}
    for rows in (1, 5, 61):
        x = normal(rows, rows, K)
        chosen = np.arange(rows) % 2
        results |= {
            f"linear {rows}": call(compiled(linear, TILE, "float32"), x, weights, shape=(rows, N)),
            f"quantized {rows}": call(
                compiled(quantized_linear, MACHINE, "Q4_K"), x, packed, shape=(rows, N)
            ),
            f"experts {rows}": call(
                compiled(quantized_expert_linear, MACHINE, "Q4_K"),
                *(x, experts, chosen),
                shape=(rows, N),
            ),
            f"table {rows}": call(
                compiled(quantized_embedding, MACHINE, "Q4_K", N, K),
                *(np.arange(rows), packed),
                shape=(rows, K),
            ),
            f"norm {rows}": call(compiled(rms_norm, TILE, K, 1e-5), x, normal(2, K), shape=x.shape),
            f"attention {rows}": attended(rows),
        }
    return results


def attended(rows: int) -> np.ndarray:
    """Queries behind 130 keys."""
    q = normal(3, 1, rows, 6, 40)
    keys, values = normal(4, 1, 2, 40, 200), normal(5, 1, 2, 200, 40)
    function = compiled(attention, TILE, 6, 2, 40, 0.2)
    return call(function, q, keys, values, np.array([130], "i4"), shape=q.shape)


# As a process with so many threads runs it; how its code is optimised does not matter.
PROGRAM = f"""
import sys, numpy
from tests.effort import be_quick
be_quick()
from {__name__} import outputs
numpy.savez(sys.argv[1], **outputs())
"""


def of_threads(folder: Path, count: int) -> dict[str, np.ndarray]:
    """The outputs of a process that has so many."""
    file = folder / f"{count}.npz"
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(file)]
    variables = {"TVM_NUM_THREADS": str(count), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | variables)
    with np.load(file) as archive:
        return dict(archive)


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit(tmp_path: Path) -> None:
    first, *others = (of_threads(tmp_path, count) for count in THREADS)
    assert len(first) == 18
    assert all(np.isfinite(array).all() for array in first.values())
    for other in others:
        for name, array in first.items():
            np.testing.assert_array_equal(other[name], array, err_msg=name)
