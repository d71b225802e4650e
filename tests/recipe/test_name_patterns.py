from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.recipe.name_patterns import Pattern

SEGMENT = st.from_regex(r"[a-z_]{1,6}", fullmatch=True)
INDEX = st.integers(0, 999)


@pytest.mark.parametrize(
    ("pattern", "name", "indices"),
    [
        ("layers.{layer}.attn.q.weight", "layers.12.attn.q.weight", {"layer": 12}),
        ("model.norm.weight", "model.norm.weight", {}),
        ("model.norm.weight", "language_model.norm.weight", None),
        ("model.norm.weight", "model_norm.weight", None),
        ("layers.{layer}.w", "layers.01.w", None),
        ("layers.{layer}.w", "layers.-1.w", None),
        ("layers.{layer}.w", "layers.\u0661.w", None),
        ("layers.{layer}.w", "layers.1.w\n", None),
        ("*.inv_freq", "model.layers.0.rotary_emb.inv_freq", {}),
        ("*.inv_freq", "inv_freq", None),
        ("a.*.b", "a.b", None),
        ("e.{layer}.x.{expert}.w", "e.3.x.0.w", {"layer": 3, "expert": 0}),
    ],
)
def test_match(pattern: str, name: str, indices: dict[str, int] | None) -> None:
    assert Pattern(pattern).match(name) == indices


@given(st.lists(st.one_of(SEGMENT, INDEX), min_size=1, max_size=6))
def test_a_name_made_from_indices_gives_them_back(parts: list[str | int]) -> None:
    numbers = {f"i{n}": part for n, part in enumerate(parts) if isinstance(part, int)}
    text = ".".join(f"{{i{n}}}" if isinstance(p, int) else p for n, p in enumerate(parts))
    pattern = Pattern(text)
    assert not list(pattern.problems())
    assert pattern.match(pattern.name(numbers)) == numbers


@pytest.mark.parametrize("text", ["a..b", "", "a.{layer}x", "a.{layer}.{layer}", "a.{", "a.b*"])
def test_problems(text: str) -> None:
    assert list(Pattern(text).problems())
