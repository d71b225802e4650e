"""Lines about many layers as few."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.recipe.layer_ranges import folded


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], []),
        (["norm.weight [8]"], ["norm.weight [8]"]),
        (["a.3.b"], ["a.3.b"]),
        (["a.0.b", "a.1.b"], ["a.{0..1}.b"]),
        ([f"a.{i}.b" for i in (0, 1, 2, 3, 7, 9, 10)], ["a.{0..3,7,9..10}.b"]),
        (["z", *(f"a.{i}.b" for i in range(3)), "c"], ["z", "a.{0..2}.b", "c"]),
        (
            [f"h.{i}.q.weight [4, 8] (for layers.{i}.attn.q.weight)" for i in range(32)],
            ["h.{0..31}.q.weight [4, 8] (for layers.{0..31}.attn.q.weight)"],
        ),
        (
            [f"h.{i}.experts.{j}.w1 (for layers.{i}.up)" for i in range(2) for j in range(8)],
            ["h.{0..1}.experts.{0..7}.w1 (for layers.{0..1}.up)"],
        ),
        (
            ["h.0.e.0.w", "h.0.e.1.w", "h.1.e.0.w"],
            ["h.0.e.{0..1}.w", "h.1.e.0.w"],
        ),
        (["a.0.b [8]", "a.1.b [9]"], ["a.0.b [8]", "a.1.b [9]"]),
        (["a.0.b", "a.0.b"], ["a.0.b"]),
        (["a.007.b", "a.8.b"], ["a.007.b", "a.8.b"]),
        (["a.\u0663.b"], ["a.\u0663.b"]),
        ([f"a{'.1' * 9}.b", f"a{'.2' * 9}.b"], [f"a{'.1' * 9}.b", f"a{'.2' * 9}.b"]),
        (["a.{}.b", "{0}.1.x"], ["a.{}.b", "{0}.1.x"]),
    ],
)
def test_folded(lines: list[str], expected: list[str]) -> None:
    assert folded(lines) == expected


def unfolded(line: str) -> set[str]:
    """Every line that a folded one with single sets stands for, each brace by itself."""
    parts = re.split(r"\{([\d.,]+)\}", line)
    choices = [list(_numbers(text)) for text in parts[1::2]]
    return {
        "".join(itertools.chain.from_iterable(zip(parts[::2], (*picked, ""), strict=True)))
        for picked in itertools.product(*choices)
    }


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for run in text.split(","):
        first, _, last = run.partition("..")
        found += map(str, range(int(first), int(last or first) + 1))
    return found


@given(st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 5))))
def test_no_line_is_lost_and_none_made_up(rows: set[tuple[str, int, int]]) -> None:
    lines = {f"{name}.{i}.x.{j}.y" for name, i, j in rows}
    shorter = folded(sorted(lines))
    # Where the two numbers always agree they are one, and a folded line stands for the pairs.
    pairs = all(i == j for _, i, j in rows)
    stands = set().union(*map(unfolded, shorter)) if shorter else set()
    if not pairs and not _coupled(rows):
        assert stands == lines
    assert lines <= stands
    assert len(shorter) <= len(lines)


def _coupled(rows: set[tuple[str, int, int]]) -> bool:
    """Return whether both numbers agree in all rows of a name."""
    return any(all(i == j for name, i, j in rows if name == one) for one in "ab")
