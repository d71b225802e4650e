"""Kernels that measure the machine compute what they say: they may leave nothing out."""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.compiler import peak_kernels
from maxtool.compiler.peak_kernels import CHAINS, ROUNDS, STREAMS, PeakKernels


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
