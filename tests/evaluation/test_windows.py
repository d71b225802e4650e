"""Windows, beside a loop written after llama.cpp's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.errors import InputError, UsageError
from maxtool.evaluation.windows import cut

BOS = 1


def llama_cpp(tokens: list[int], n_ctx: int, add_bos: bool) -> list[tuple[list[int], list[int]]]:
    """The tokens read, and those predicted from position ``n_ctx / 2`` on, of each chunk."""
    chunks = []
    first = n_ctx // 2
    for chunk in range(len(tokens) // n_ctx):
        start = chunk * n_ctx
        read = tokens[start : start + n_ctx]
        if add_bos:
            read[0] = BOS
        scored = [tokens[start + first + i + 1] for i in range(n_ctx - 1 - first)]
        chunks.append((read, scored))
    return chunks


@given(st.integers(8, 40), st.integers(0, 200), st.booleans())
def test_windows_are_those_of_llama_cpp(length: int, more: int, add_bos: bool) -> None:
    ids = np.arange(100, 100 + length + more)
    windows = cut(ids, length, BOS if add_bos else None)
    expected = llama_cpp(ids.tolist(), length, add_bos)
    assert windows.ids.tolist() == [read for read, _ in expected]
    assert windows.tokens.tolist() == [tokens for _, tokens in expected]
    assert (windows.count, windows.length) == (len(expected), length)


@given(st.integers(8, 40))
def test_each_scored_row_predicts_its_token(length: int) -> None:
    windows = cut(np.arange(3 * length), length, None)
    for ids, tokens in zip(windows.ids, windows.tokens, strict=True):
        rows = windows.scored(ids[:, np.newaxis])[:, 0]
        np.testing.assert_array_equal(rows + 1, tokens)


def test_only_so_many_windows() -> None:
    assert cut(np.arange(100), 10, None, 3).count == 3
    assert cut(np.arange(100), 10, None, 300).count == 10


def test_the_text_is_not_changed() -> None:
    ids = np.arange(16)
    cut(ids, 8, BOS)
    np.testing.assert_array_equal(ids, np.arange(16))


@pytest.mark.parametrize(
    ("length", "most", "error", "says"),
    [
        (7, None, UsageError, "the shortest has 8"),
        (-1, None, UsageError, "the shortest has 8"),
        (8, 0, UsageError, "0 windows"),
        (17, None, InputError, "the text has 16 tokens, and a window has 17"),
    ],
)
def test_what_cannot_be_cut(
    length: int, most: int | None, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        cut(np.arange(16), length, None, most)
