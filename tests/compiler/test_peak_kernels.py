"""Kernels that measure the machine compute what they say: they may leave nothing out."""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.compiler import peak_kernels
from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.kernels.cpu import builder
from maxtool.compiler.kernels.cpu.integer_dot import SETS, IntegerDot, instruction_set
from maxtool.compiler.peak_kernels import CHAINS, ROUNDS, STREAMS, PeakKernels, multiply_int8


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> PeakKernels:
    monkeypatch.setattr(peak_kernels, "READ_BYTES", 1 << 20)
    return PeakKernels(2)


def test_every_number_is_read(kernels: PeakKernels) -> None:
    sums = kernels.read().numpy()
    assert sums.sum() * 4 == kernels.read_bytes
    assert (sums > 0).all()
    assert 1 << 20 <= kernels.read_bytes < 1 << 21


def test_streams_are_not_a_power_of_two_apart(kernels: PeakKernels) -> None:
    stretch = kernels.read_bytes // (16 * STREAMS)
    assert stretch % 128 == 64


def test_multiplying_reaches_the_fixed_point(kernels: PeakKernels) -> None:
    results = kernels.multiply().numpy()
    # x / 2 + 1 / 2 leads to 1, whatever it begins with.
    np.testing.assert_allclose(results, CHAINS, rtol=1e-6)
    assert kernels.flops == 2 * results.size * CHAINS * ROUNDS


def test_matrices_are_multiplied_where_an_instruction_does() -> None:
    """Each of the 2 rows and 4 columns of ``smmla``, done twice, has 8 products."""
    kernels = PeakKernels(1, cpu_target("cpu:neoverse-v1"))
    assert kernels.int8_operations == 2 * 8 * ROUNDS * CHAINS * (2 * 4 * 8)
    dot = SETS["i8mm"].matrices
    assert isinstance(dot, IntegerDot)
    function = multiply_int8(dot)
    code = builder.build({"kernel": function}, kernels.target.tvm).mod.inspect_source("asm")
    assert "\tsmmla\t" in code and "\tsdot\t" not in code


def test_products_of_bytes_are_those_of_numpy(kernels: PeakKernels) -> None:
    """Each sum has its own bytes added to it, all factors being 1."""
    dot = instruction_set(kernels.target).narrow
    first = np.arange(CHAINS)
    halves = {"int32": [first + 1], "int16": [first, np.ones(CHAINS, int)]}[dot.sums]
    with np.errstate(over="ignore"):
        totals = np.array(halves).astype(dot.sums)
        for _ in range(ROUNDS):
            bytes_of = totals.view("u1").reshape(*totals.shape, -1)
            totals = totals + bytes_of.sum(-1).astype(dot.sums)
    results = kernels.multiply_int8().numpy()
    assert (results == totals.astype("i4").sum(dtype="i4")).all()
    assert results.shape[1] == dot.lanes
    assert kernels.int8_operations == 2 * 4 * results.size * CHAINS * ROUNDS
