"""Tests of which only some run: how parameters are chosen."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from maxtool.compiler import cpu_target
from tests import effort
from tests.effort import TESTS, sampled, thinned


def running(parameters: list[Any], mark: str) -> list[Any]:
    """Return the parameters without a mark."""
    return [
        one
        for one in parameters
        if not any(each.name == mark for each in getattr(one, "marks", ()))
    ]


def test_a_third_is_in_a_sample_beside_those_that_are_kept() -> None:
    names = [f"case {number}" for number in range(300)]
    usual = running(sampled(names), "explored")
    assert 80 < len(usual) < 120
    assert 130 < len(running(sampled(names, share=2), "explored")) < 170
    assert set(running(sampled(names, *names[:9]), "explored")) == {*usual, *names[:9]}


def test_a_new_parameter_moves_no_other() -> None:
    names = [f"case {number}" for number in range(30)]
    usual = running(sampled(names), "explored")
    assert [one for one in running(sampled(["new", *names]), "explored") if one != "new"] == usual


def test_slow_ones_are_sampled_too() -> None:
    names = [f"case {number}" for number in range(30)]
    chosen = sampled(thinned(names, "case 0"), "case 0")
    assert running(running(chosen, "explored"), "slow") == ["case 0"]
    usual = {*running(sampled(names), "explored")} - {"case 0"}
    assert {one.values[0] for one in running(chosen, "explored") if one != "case 0"} == usual


def _placed(room: str, marks: set[str]) -> Any:
    """A test in a folder, with marks."""
    return SimpleNamespace(
        path=TESTS / room / "test_it.py", get_closest_marker=lambda name: name in marks or None
    )


class _Item:
    """A test as pytest collects it, with marks and perhaps parameters."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self.nodeid, self.marks = nodeid, [SimpleNamespace(name=mark) for mark in marks]
        if "[" in nodeid:
            self.callspec = None

    def iter_markers(self) -> list[Any]:
        return self.marks

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(SimpleNamespace(name=mark.name))


def test_of_any_long_list_a_sample_runs_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(effort._chosen, "quick", True)
    many = [_Item(f"a.py::test_many[{number}]") for number in range(100)]
    few = [_Item(f"a.py::test_few[{number}]") for number in range(effort.QUICK_MANY - 1)]
    one = [_Item("a.py::test_one")]
    effort.sample_slow([*many, *few, *one])  # type: ignore[list-item]
    assert sum(not item.marks for item in many) == 100 // effort.QUICK_SHARE
    assert not any(item.marks for item in (*few, *one))


def test_of_many_slow_parameters_a_sample_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [_Item(f"a.py::test_many[{number}]", "slow") for number in range(300)]
    others = [
        *(_Item(f"a.py::test_few[{number}]", "slow") for number in range(effort.MANY - 1)),
        *(_Item(f"a.py::test_quick[{number}]") for number in range(99)),
        *(_Item(f"a.py::test_files[{number}]", "slow", "reference") for number in range(99)),
        *(_Item(f"a.py::test_{number}", "slow") for number in range(99)),
    ]
    monkeypatch.setitem(effort._chosen, "quick", False)
    effort.sample_slow([*many, *others])  # type: ignore[list-item]
    explored = [item for item in many if any(mark.name == "explored" for mark in item.marks)]
    assert len(explored) == 300 - math.ceil(300 / effort.SHARE)
    assert not any(mark.name == "explored" for item in others for mark in item.marks)


def test_of_sampled_ones_at_least_one_runs() -> None:
    few = [_Item(f"a.py::test_few[{number}]", "sampled") for number in range(effort.MANY)]
    kept = [_Item(f"a.py::test_few[of {number}]", "sampled", "explored") for number in range(9)]
    files = [_Item(f"a.py::test_files[{one}]", "sampled", "reference") for one in range(9)]
    effort.sample_slow([*few, *kept, *files])  # type: ignore[list-item]
    for own, left in ((few, 1), (files, math.ceil(9 / effort.SHARE))):
        marked = [any(mark.name == "explored" for mark in item.marks) for item in own]
        assert marked.count(False) == left


def test_operations_are_optimised_with_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "_chosen", {"quick": False, "everything": False})
    monkeypatch.setattr(cpu_target, "OPT_LEVEL", None)
    effort.be_thorough()
    effort.optimise_for(_placed("importers", set()))
    assert cpu_target.OPT_LEVEL == effort.USUAL


def test_what_is_not_kept_is_slow() -> None:
    assert running(thinned([(1, 2), (3, 4)], (3, 4)), "slow") == [(3, 4)]


@pytest.mark.parametrize("choose", [sampled, thinned])
def test_what_is_kept_is_among_the_parameters(choose: Callable[..., list[Any]]) -> None:
    with pytest.raises(ValueError, match=r"not among the parameters: \['z'\]"):
        choose("ab", "z")


@pytest.mark.parametrize(
    ("room", "marks", "level"),
    [
        ("compiler", {"slow"}, effort.USUAL),
        ("graph", set(), effort.NONE),
        ("artifact", set(), effort.NONE),
        ("artifact", {"slow", "reference"}, effort.USUAL),
    ],
)
def test_kernels_are_optimised(
    monkeypatch: pytest.MonkeyPatch, room: str, marks: set[str], level: int
) -> None:
    monkeypatch.setattr(effort, "_chosen", {"quick": False, "everything": False})
    monkeypatch.setattr(cpu_target, "OPT_LEVEL", None)
    effort.optimise_for(_placed(room, marks))
    assert level == cpu_target.OPT_LEVEL
