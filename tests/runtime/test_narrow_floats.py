"""Floats that NumPy lacks: every number of theirs as ml_dtypes has it, in and out of a call."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from maxtool.runtime.loader.narrow_floats import widened
from maxtool.runtime.loader.specs import BITS


@pytest.mark.parametrize("name", BITS)
def test_every_number(name: str) -> None:
    bits = np.arange(1 << 8 * BITS[name].itemsize).astype(BITS[name])
    expected = bits.view(np.dtype(getattr(ml_dtypes, name))).astype(np.float32)
    np.testing.assert_array_equal(widened(bits, name), expected)
