"""The largest elements and the order of all, on GPUs, against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.compiler.cuda.harness import FEW_TYPES, FLOATS, INTEGERS, build, elements, resources, run
from tests.effort import examples, thinned


def order(x: np.ndarray, *, ascending: bool) -> np.ndarray:
    """Places by value, NaN above every number, the first of equal elements first."""
    ranks = np.unique(np.sort(x, axis=None), return_inverse=True)[0]
    rank = np.where(np.isnan(x.astype("f8")), ranks.size, np.searchsorted(ranks, x))
    return np.argsort(rank if ascending else -rank, axis=-1, kind="stable")


def ties(rows: int, n: int, dtype: str) -> np.ndarray:
    """Elements of which many are equal; some of them NaN where there is such a thing."""
    x = np.round(elements(n, (rows, n), dtype))
    if dtype in FLOATS and x.size > 2:
        x[0, :: max(1, n // 3)] = np.nan
    return x


@pytest.mark.parametrize("dtype", thinned([*FLOATS, *INTEGERS], *FEW_TYPES))
@pytest.mark.parametrize("ascending", [True, False])
def test_the_order_of_a_row(dtype: str, ascending: bool) -> None:
    for rows, n in ((0, 3), (3, 1), (2, 2), (5, 37), (2, 600), (2, 0)):
        x = ties(rows, n, dtype)
        into = np.full(x.shape, -7)
        result = run("sorted_places", x, into=into, dtype=dtype, ascending=ascending)
        np.testing.assert_array_equal(result, order(x.astype("f8"), ascending=ascending))


@pytest.mark.parametrize("dtype", thinned([*FLOATS, *INTEGERS], *FEW_TYPES))
@pytest.mark.parametrize("count", [1, 3, 8])
def test_the_largest_of_a_row(dtype: str, count: int) -> None:
    for rows, n in ((0, 8), (3, 8), (9, 37), (2, 1100)):
        x = ties(rows, n, dtype)
        actual = run("top_rows", x, into=np.full((rows, count), -7), dtype=dtype, count=count)
        expected = order(x.astype("f8"), ascending=False)[:, :count]
        np.testing.assert_array_equal(actual, expected)


@settings(max_examples=examples(15, 60), deadline=None)
@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 3), st.integers(5, 70)),
        elements=st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf])),
    )
)
def test_any_floats(x: np.ndarray) -> None:
    expected = order(x.astype("f8"), ascending=False)
    actual = run("sorted_places", x, into=np.full(x.shape, -7), dtype="float32", ascending=False)
    np.testing.assert_array_equal(actual, expected)
    first = run("top_rows", x, into=np.full((len(x), 5), -7), dtype="float32", count=5)
    np.testing.assert_array_equal(first, expected[:, :5])
    argmax = run("index_rows", x, into=np.full(len(x), -7), op="argmax", dtype="float32")
    np.testing.assert_array_equal(argmax, expected[:, 0])


def test_what_they_take_of_a_gpu() -> None:
    functions = {
        "top": build("top_rows", dtype="float32", count=8),
        "top_half": build("top_rows", dtype="float16", count=2),
        "sort": build("sorted_places", dtype="float32", ascending=True),
    }
    result = dict(resources(functions))
    assert len(result) == 2 * len(functions)
    assert not [name for name, one in result.items() if one.stack or one.spills]
