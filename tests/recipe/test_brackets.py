"""Rules that are written once for several words."""

from __future__ import annotations

from typing import Any

import pytest

from maxtool.recipe.brackets import written_out


def rules(table: dict[str, Any]) -> dict[str, Any]:
    return written_out({"weights": {"hf": table}})["weights"]["hf"]


def test_every_combination_with_the_same_words_in_its_source() -> None:
    found = rules({"a.[q,k].[weight,bias]": "b_[q,k].[weight,bias]"})
    assert found == {
        "a.q.weight": "b_q.weight",
        "a.q.bias": "b_q.bias",
        "a.k.weight": "b_k.weight",
        "a.k.bias": "b_k.bias",
    }


def test_the_place_of_a_word_is_the_part() -> None:
    found = rules({"a.[q,k]": {"from": "b", "op": "split", "sizes": [1, 2], "part": "[q,k]"}})
    assert [(name, rule["part"], rule["from"]) for name, rule in found.items()] == [
        ("a.q", 0, "b"),
        ("a.k", 1, "b"),
    ]


def test_the_place_of_a_word_behind_a_field() -> None:
    steps = [{"op": "split"}, {"op": "divide", "factors": ["c", "d.[q,k]", "d.[x,y]", 3]}]
    found = rules({"a.[q,k]": {"from": "b", "ops": steps}})
    assert found["a.k"]["ops"][1]["factors"] == ["c", "d.1", "d.[x,y]", 3]


def test_ways_sources_and_ties() -> None:
    found = rules({"a.[x,y]": [{"from": ["[x,y]1", "[x,y]2"], "tie": "t.[x,y]"}, {"from": "c"}]})
    assert found["a.y"] == [{"from": ["y1", "y2"], "tie": "t.y"}, {"from": "c"}]


def test_taking_away_and_what_is_no_rule() -> None:
    table = {"a.[x,y]": False, "drop": ["[x,y]"], "rename": {"[x,y]": "z"}}
    assert rules(table) == {"a.x": False, "a.y": False, **dict(list(table.items())[1:])}


@pytest.mark.parametrize("data", [{}, {"weights": 3}, {"weights": {"hf": 3}}])
def test_other_tables_stay(data: dict[str, Any]) -> None:
    assert written_out(data) == data


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a.x": "b", "a.[x,y]": "c"}, "'a.x' is there twice"),
        ({".".join(["[a,b]" + str(i) for i in range(3)]): "c"}, None),
        ({".".join(f"[a{i},b{i}]" for i in range(7)): "c"}, "more than 64 rules"),
        ({".".join(f"[{','.join('ab' * 40)},{i}]" for i in range(9)): "c"}, "more than 64 rules"),
    ],
)
def test_problems(table: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert set(rules(table)) == {"a0.a1.a2", "b0.b1.b2"}  # one choice, three times
        return
    with pytest.raises(ValueError, match=message):
        rules(table)
