"""Norms, softmax, reductions and running sums of rows on GPUs against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.compiler.kernels.kernel_options import ChainStep
from tests.compiler.cuda.harness import (
    FEW_TYPES,
    FLOATS,
    INTEGERS,
    build,
    elements,
    numpy_type,
    resources,
    run,
)
from tests.effort import thinned

# Relative error: some operations in float32, and the rounding of the result.
RTOL = {"float32": 2e-6, "float16": 2**-10, "bfloat16": 2**-7, "float64": 1e-13}
# Rows that a warp takes, up to its longest, and rows that a block takes.
SCALED_SUM = (ChainStep("mul", (1, (0.5).hex())), ChainStep("add", (0, 2)))
SHAPES = [(0, 5), (3, 1), (9, 33), (2, 1024), (3, 1025), (2, 0)]


def empty(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array for a kernel to overwrite."""
    return np.full(shape, 7, numpy_type(dtype))


def rms(x: np.ndarray, w: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    wide = x.astype("f8")
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps) * w.astype("f8")


@pytest.mark.parametrize("dim", [1, 5, 64, 128, 172, 576, 1028, 4096])
@pytest.mark.parametrize("out", ["float32", "float16", "bfloat16"])
def test_rms_norm_of_a_known_length(dim: int, out: str) -> None:
    w = elements(0, (dim,), "float32")
    for rows in (0, 1, 9):
        x = elements(rows, (rows, dim), "float32")
        options = {"dim": dim, "eps": 1e-5, "out": out}
        result = run("rms_norm", x, w, into=empty(x.shape, out), **options)
        np.testing.assert_allclose(result.astype("f8"), rms(x, w), rtol=RTOL[out], atol=1e-6)


def test_rms_norm_of_zeros_is_zero() -> None:
    x, w = np.zeros((2, 64), "f4"), elements(0, (64,), "float32")
    assert not run("rms_norm", x, w, into=empty(x.shape, "float32"), dim=64, eps=1e-6).any()


def test_rms_norm_of_rows_that_do_not_fit_into_registers() -> None:
    x, w = elements(0, (2, 33001), "float32"), elements(1, (33001,), "float32")
    options = {"dim": 33001, "eps": 1e-5, "out": "float16"}
    result = run("rms_norm", x, w, into=empty(x.shape, "float16"), **options)
    np.testing.assert_allclose(result.astype("f8"), rms(x, w), rtol=2**-10, atol=1e-6)


@pytest.mark.parametrize("dim", [5, 64, 1028])
@pytest.mark.parametrize("out", ["float32", "bfloat16"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_chain_and_its_norm(dim: int, out: str, kept: bool) -> None:
    w = elements(0, (dim,), "float32")
    options = {"dim": dim, "eps": 1e-5, "inputs": 2, "steps": SCALED_SUM, "kept": kept, "out": out}
    for rows in (0, 1, 9):
        x, more = elements(rows, (rows, dim), "float32"), elements(50, (rows, dim), "float32")
        into = [empty(x.shape, "float32")] * kept + [empty(x.shape, out)]
        *totals, actual = run("chain_rms_norm", x, more, w, into=into, **options)
        total = x + more * np.float32(0.5)
        for one in totals:
            np.testing.assert_array_equal(one, total)
        expected = rms(total, w)
        np.testing.assert_allclose(actual.astype("f8"), expected, rtol=RTOL[out], atol=1e-6)


@pytest.mark.parametrize("dtype", thinned(FLOATS, "float32", "bfloat16"))
@pytest.mark.parametrize("weight", thinned(["same", "float32"], "same"))
@pytest.mark.parametrize("round_first", [False, True])
def test_rms_norm_of_any_type(dtype: str, weight: str, round_first: bool) -> None:
    weight = dtype if weight == "same" else weight
    for rows, n in SHAPES:
        x, w = elements(n, (rows, n), dtype), elements(1, (n,), weight)
        options = {"dtype": dtype, "weight": weight, "eps": 1e-5, "offset": 1.0}
        into = empty(x.shape, dtype)
        actual = run("rms_norm_rows", x, w, into=into, **options, round_first=round_first)
        if x.size:
            expected = rms(x, w.astype("f8") + 1)
            rtol = RTOL[dtype] * (3 if round_first else 1)
            np.testing.assert_allclose(actual.astype("f8"), expected, rtol=rtol, atol=rtol / 2)


@pytest.mark.parametrize("dtype", FLOATS)
def test_l2_norm(dtype: str) -> None:
    for rows, n in SHAPES:
        x = elements(n, (rows, n), dtype)
        actual = run("l2_norm_rows", x, into=empty(x.shape, dtype), dtype=dtype, eps=1e-6)
        if x.size:
            wide = x.astype("f8")
            expected = wide / np.sqrt((wide**2).sum(-1, keepdims=True) + 1e-6)
            np.testing.assert_allclose(actual.astype("f8"), expected, rtol=RTOL[dtype], atol=1e-7)


def test_l2_norm_of_what_is_not_finite() -> None:
    x = np.array([[0, 0, 0], [np.inf, -1, 0], [1, np.nan, 0], [3, -4, 0]], "f4")
    result = run("l2_norm_rows", x, into=empty(x.shape, "float32"), dtype="float32", eps=1e-6)
    np.testing.assert_array_equal(result[:3], [[0, 0, 0], [np.nan, 0, 0], [np.nan] * 3])
    np.testing.assert_allclose(result[3], [0.6, -0.8, 0], rtol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("weight", ["same", "float32"])
def test_layer_norm(dtype: str, weight: str) -> None:
    weight = dtype if weight == "same" else weight
    for rows, n in SHAPES:
        x = elements(n, (rows, n), dtype)
        gamma, beta = elements(1, (n,), weight), elements(2, (n,), weight)
        options = {"dtype": dtype, "weight": weight, "eps": 1e-5, "out": dtype}
        actual = run("layer_norm_rows", x, gamma, beta, into=empty(x.shape, dtype), **options)
        if x.size:
            wide = x.astype("f8")
            normal = wide - wide.mean(-1, keepdims=True)
            normal /= np.sqrt((normal**2).mean(-1, keepdims=True) + 1e-5)
            expected = normal * gamma.astype("f8") + beta.astype("f8")
            close = {"rtol": RTOL[dtype], "atol": RTOL[dtype] / 2}
            np.testing.assert_allclose(actual.astype("f8"), expected, **close)


def test_layer_norm_to_16_bits() -> None:
    x = elements(0, (3, 70), "float32")
    ones = np.ones(70, "f4")
    options = {"dtype": "float32", "weight": "float32", "eps": 1e-5, "out": "float32"}
    wide = run("layer_norm_rows", x, ones, ones, into=empty(x.shape, "float32"), **options)
    options |= {"out": "bfloat16"}
    result = run("layer_norm_rows", x, ones, ones, into=empty(x.shape, "bfloat16"), **options)
    np.testing.assert_array_equal(result, wide.astype(numpy_type("bfloat16")))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("channels", "groups", "size"), [(6, 3, 7), (4, 1, 300), (4, 4, 9)])
def test_group_norm(dtype: str, channels: int, groups: int, size: int) -> None:
    own = channels // groups
    x = elements(0, (2, groups, own * size), dtype)
    gamma, beta = elements(1, (channels,), "float32"), elements(2, (channels,), "float32")
    rows = x.reshape(2 * groups, own * size)
    options = {"dtype": dtype, "weight": "float32", "eps": 1e-5}
    options |= {"groups": groups, "channels": channels}
    actual = run("group_norm_rows", rows, gamma, beta, into=empty(rows.shape, dtype), **options)
    wide = x.astype("f8")
    normal = wide - wide.mean(-1, keepdims=True)
    normal /= np.sqrt((normal**2).mean(-1, keepdims=True) + 1e-5)
    expected = normal.reshape(2, channels, size) * gamma[:, None] + beta[:, None]
    close = {"rtol": RTOL[dtype], "atol": RTOL[dtype]}
    np.testing.assert_allclose(actual.astype("f8"), expected.reshape(rows.shape), **close)


@pytest.mark.parametrize("op", ["softmax", "logsoftmax"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(op: str, dtype: str) -> None:
    for rows, n in SHAPES:
        x = 4 * elements(n, (rows, n), dtype)
        actual = run("softmax_rows", x, into=empty(x.shape, dtype), op=op, dtype=dtype)
        if x.size:
            wide = x.astype("f8")
            below = wide - wide.max(-1, keepdims=True)
            log = below - np.log(np.exp(below).sum(-1, keepdims=True))
            expected = log if op == "logsoftmax" else np.exp(log)
            rtol = 10 * RTOL[dtype] if dtype == "float32" else RTOL[dtype]
            np.testing.assert_allclose(actual.astype("f8"), expected, rtol=rtol, atol=1e-7)


def test_softmax_of_what_is_hidden() -> None:
    x = np.array([[0, -np.inf, 1], [np.nan, 0, 0], [-np.inf] * 3, [1e30, 0, 0]], "f4")
    result = run("softmax_rows", x, into=empty(x.shape, "float32"), op="softmax", dtype="float32")
    assert result[0, 1] == 0 and np.isclose(result[0].sum(), 1)
    assert np.isnan(result[1:3]).all()
    np.testing.assert_array_equal(result[3], [1, 0, 0])


REDUCTIONS: dict[str, Any] = {
    "max": np.max,
    "mean": np.mean,
    "min": np.min,
    "logsumexp": np.logaddexp.reduce,
    "prod": np.prod,
    "sum": np.sum,
}


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", thinned([*FLOATS, *INTEGERS], *FEW_TYPES))
def test_reductions(op: str, dtype: str) -> None:
    if op in ("logsumexp", "mean") and dtype in INTEGERS:
        return
    for rows, n in SHAPES[:-1]:
        x = elements(n, (rows, n), dtype)
        actual = run("reduce_rows", x, into=empty((rows,), dtype), op=op, dtype=dtype)
        if dtype in INTEGERS:
            with np.errstate(over="ignore"):
                expected = REDUCTIONS[op](x, axis=-1)
            np.testing.assert_array_equal(actual, expected.astype(dtype))
        else:
            expected = REDUCTIONS[op](x.astype("f8"), axis=-1)
            close = {"rtol": 2 * RTOL[dtype], "atol": 2e-5 if dtype == "float32" else RTOL[dtype]}
            np.testing.assert_allclose(actual.astype("f8"), expected, **close)


@pytest.mark.parametrize(
    ("op", "value"),
    [("sum", 0), ("prod", 1), ("max", -np.inf), ("logsumexp", -np.inf)],
)
def test_reductions_of_nothing(op: str, value: float) -> None:
    x = np.zeros((3, 0), "f4")
    result = run("reduce_rows", x, into=empty((3,), "float32"), op=op, dtype="float32")
    assert (result == value).all()


@pytest.mark.parametrize("op", ["all", "any"])
@pytest.mark.parametrize("n", [0, 1, 5, 70, 1100])
def test_truth(op: str, n: int) -> None:
    x = np.random.default_rng(n).random((40, n)) < (0.02 if op == "any" else 0.98)
    result = run("reduce_rows", x, into=np.zeros(40, bool), op=op, dtype="bool")
    np.testing.assert_array_equal(result, getattr(x, op)(-1))


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("n", [40, 1100])
def test_extremes_keep_nan(op: str, n: int) -> None:
    x = elements(0, (4, n), "float32")
    for row, place in enumerate((0, 17, n - 1)):
        x[row, place] = np.nan
    result = run("reduce_rows", x, into=empty((4,), "float32"), op=op, dtype="float32")
    np.testing.assert_array_equal(result, getattr(np, op)(x, axis=-1))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_where_the_extremes_are(op: str, dtype: str) -> None:
    for rows, n in SHAPES[1:-1]:
        x = np.round(elements(n, (rows, n), dtype))  # so that some are equal
        if dtype in FLOATS and n > 4:
            x[0, [n // 2, n - 1]] = np.nan
        result = run("index_rows", x, into=np.full(rows, 7), op=op, dtype=dtype)
        np.testing.assert_array_equal(result, getattr(np, op)(x.astype("f8"), axis=-1))


def test_of_an_empty_row_the_first_is_meant() -> None:
    x = np.zeros((3, 0), "f4")
    result = run("index_rows", x, into=np.full(3, 7), op="argmax", dtype="float32")
    np.testing.assert_array_equal(result, [0, 0, 0])


@pytest.mark.parametrize(
    "dtype", thinned([*FLOATS, "int8", "uint16", "int64"], "float32", "bfloat16", "int64")
)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums(dtype: str, exclusive: bool, reverse: bool) -> None:
    for rows, n in SHAPES:
        x = elements(n, (rows, n), dtype)
        options = {"dtype": dtype, "exclusive": exclusive, "reverse": reverse}
        actual = run("cumsum_rows", x, into=empty(x.shape, dtype), **options)
        wide = x.astype("f8" if dtype in FLOATS else dtype)
        turned = wide[:, ::-1] if reverse else wide
        sums = np.cumsum(turned, axis=-1, dtype=wide.dtype)
        if exclusive:
            sums = np.concatenate([np.zeros_like(sums[:, :1]), sums[:, :-1]], -1)
        expected = (sums[:, ::-1] if reverse else sums)[:, :n]
        close = {"rtol": RTOL.get(dtype, 0), "atol": 30 * RTOL.get(dtype, 0)}
        np.testing.assert_allclose(actual.astype(wide.dtype), expected, **close)


def test_running_sums_before_what_is_not_finite_are() -> None:
    x = np.ones((1, 70), "f4")
    x[0, 40] = np.inf
    options = {"dtype": "float32", "exclusive": True, "reverse": False}
    result = run("cumsum_rows", x, into=empty(x.shape, "float32"), **options)
    np.testing.assert_array_equal(result[0, :41], np.arange(41))
    assert np.isinf(result[0, 41:]).all()


@pytest.mark.slow
def test_what_they_take_of_a_gpu() -> None:
    floats = {"dtype": "float32", "weight": "float32", "eps": 1e-5}
    functions = {
        f"rms_{dim}_{out}": build("rms_norm", dim=dim, eps=1e-5, out=out)
        for dim, out in (
            (128, "float32"),
            (2048, "float16"),
            (4096, "bfloat16"),
            (32768, "float32"),
        )
    }
    chain = {"eps": 1e-5, "inputs": 2, "steps": SCALED_SUM}
    functions |= {
        "odd": build("rms_norm", dim=8191, eps=1e-5),
        "chain": build("chain_rms_norm", dim=4096, kept=True, **chain, out="bfloat16"),
        "chain_long": build("chain_rms_norm", dim=32768, kept=True, **chain, out="float16"),
        "layer": build("layer_norm_rows", **floats, out="float16"),
        "l2": build("l2_norm_rows", dtype="bfloat16", eps=1e-6),
        "group": build("group_norm_rows", **floats, groups=4, channels=16),
        "rows": build("rms_norm_rows", **floats, offset=1.0, round_first=True),
        "softmax": build("softmax_rows", op="softmax", dtype="float32"),
        "logsoftmax": build("softmax_rows", op="logsoftmax", dtype="bfloat16"),
        "argmax": build("index_rows", op="argmax", dtype="float32"),
        "cumsum": build("cumsum_rows", dtype="float32", exclusive=False, reverse=False),
        "sum": build("reduce_rows", op="sum", dtype="float16"),
        "prod": build("reduce_rows", op="prod", dtype="int8"),
        "logsumexp": build("reduce_rows", op="logsumexp", dtype="bfloat16"),
        "all": build("reduce_rows", op="all", dtype="bool"),
    }
    result = dict(resources(functions))
    assert len(result) == 2 * len(functions)
    assert not [name for name, one in result.items() if one.stack or one.spills]
