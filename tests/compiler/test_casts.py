"""Casts between all element types give the bits of NumPy and ml_dtypes."""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Tensor, TensorType
from tests.compiler.execution import F32, FLOATS, NUMBERS, Array, compiled, rng
from tests.effort import thinned

CASTS = [*FLOATS, DType.bool, DType.int64, DType.uint64]


@pytest.mark.parametrize(
    "source",
    thinned(CASTS, DType.float32, DType.bfloat16, DType.int64),
    ids=lambda dtype: dtype.value,
)
def test_casts_give_the_bits_of_numpy_and_ml_dtypes(source: DType) -> None:
    values = edge_values(source)
    run = compiled(lambda x: [x.cast(dtype) for dtype in NUMBERS], TensorType(source, ["n"]))
    for dtype, got in zip(NUMBERS, run(values), strict=True):
        with np.errstate(all="ignore"):
            wanted = values.astype(dtype.to_numpy())
            kept = in_range(values, dtype)
            if dtype.is_float():
                nan = np.isnan(wanted.astype(np.float64))
                np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), nan)
                kept &= ~nan
        assert got.dtype == wanted.dtype
        bits = f"u{dtype.size_in_bytes}"
        np.testing.assert_array_equal(got[kept].view(bits), wanted[kept].view(bits), dtype.value)


def edge_values(dtype: DType) -> Array:
    """Random bits, and for floats what rounding may get wrong: ties, subnormals, limits."""
    if dtype is DType.bool:
        return np.array([True, False])
    raw = rng.integers(0, 256, 2000 * dtype.size_in_bytes, dtype=np.uint8)
    values = raw.view(dtype.to_numpy())
    if not dtype.is_float():
        return values
    limits = [0.0, -0.0, 65504, 65519, 65520, 6e-8, 2.98e-8, 3.4e38, np.inf, -np.inf, np.nan]
    ties = 1 + np.arange(64) / 512
    scaled = np.exp(rng.standard_normal(1000) * 8) * rng.choice([-1, 1], 1000)
    with np.errstate(over="ignore"):
        return np.concatenate([values, np.array([*limits, *ties, *scaled]).astype(values.dtype)])


def in_range(values: Array, dtype: DType) -> Array:
    """Keep values whose cast is defined: floats inside an integer type's range."""
    if not (dtype.is_integral() and DType.from_numpy(values.dtype).is_float()):
        return np.ones(values.shape, bool)
    info = np.iinfo(dtype.to_numpy())
    whole = np.trunc(values.astype(np.float64))
    return np.isfinite(whole) & (whole >= float(info.min)) & (whole < float(info.max))


FLOAT8 = [dtype for dtype in DType if dtype not in NUMBERS]


@pytest.mark.parametrize(
    "source", [F32, DType.bfloat16, DType.int8, *FLOAT8], ids=lambda dtype: dtype.value
)
def test_casts_from_and_to_float8(source: DType) -> None:
    """Match the bits of ml_dtypes: every number, and the ties between numbers."""
    values = edge_values(source)
    targets = [dtype for dtype in (*FLOAT8, F32, DType.bfloat16) if dtype is not source]
    run = compiled(lambda x: [x.cast(dtype) for dtype in targets], TensorType(source, ["n"]))
    wide = values.astype(np.float32)  # ml_dtypes has no casts among some of them
    for dtype, got in zip(targets, run(values), strict=True):
        with np.errstate(all="ignore"):
            wanted = wide.astype(dtype.to_numpy())
        number = ~np.isnan(wanted.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), ~number)
        assert got[number].tobytes() == wanted[number].tobytes(), dtype.value


def test_negative_floats_wrap_around_where_there_is_no_sign() -> None:
    x = np.array([-1.5, -3.0, 2.5])
    for dtype in (DType.uint8, DType.uint32, DType.uint64):
        for source in (F32, DType.float16, DType.float64):
            got = Tensor(x.astype(source.to_numpy())).cast(dtype).to_numpy()
            wanted = np.array([-1, -3, 2]).astype(dtype.to_numpy())
            np.testing.assert_array_equal(got, wanted)
