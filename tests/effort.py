"""Effort of the tests: with ``--quick``, the checks that find most faults in half the time.

Property tests draw fewer examples then. What is compiled in the tests' own process is optimised by
LLVM only where kernels are tested, and with ``--quick`` nowhere: optimising takes more than half of
the time of a model, which is made of those kernels. Programs that a test starts compile as users do
either way, and so does a test with the fixture ``optimised``. What operations compute is tested
without, but with ``--everything``.

What takes minutes for each of dozens of families, and nearly always fails for several of them or
for none, runs for a sample of them, with ``--everything`` for all.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

# Folders of tests of kernels; and of operations, which show little more of what LLVM makes of them.
OF_KERNELS = "compiler"
OF_OPERATIONS = ("graph", "importers")
TESTS = Path(__file__).resolve().parent
# Levels of LLVM's optimisation.
NONE, USUAL = 0, 3

# Parameters that are so many that a sample of them tells what all do, if they are slow, and of how
# many it has one.
MANY, SHARE = 3, 8
# The same of any test, with ``--quick``.
QUICK_MANY, QUICK_SHARE = 6, 4

_chosen = {"quick": False, "everything": False}


def be_quick() -> None:
    """Switch before the tests are imported."""
    _chosen["quick"] = True


def be_thorough() -> None:
    """Switch before the tests are imported."""
    _chosen["everything"] = True


def optimise_for(item: pytest.Item) -> None:
    """Set how far what a test compiles is optimised."""
    from maxtool.compiler import cpu_target

    room = item.path.relative_to(TESTS).parts[0]
    wanted = room == OF_KERNELS or item.get_closest_marker("reference") is not None
    if room in OF_OPERATIONS:
        wanted = _chosen["everything"]
    cpu_target.OPT_LEVEL = USUAL if wanted and not _chosen["quick"] else NONE


def examples(quick: int, full: int) -> int:
    """Return the number of examples a property test draws."""
    return quick if _chosen["quick"] else full


def thinned(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Parameters of a test, of which those that are not kept are ``slow``: they teach little more.

    A tuple is the values of several parameters.

    Raises:
        ValueError: If one that is kept is none of them.
    """
    listed = list(values)
    if strangers := [one for one in kept if one not in listed]:
        raise ValueError(f"not among the parameters: {strangers}")
    return [one if one in kept else _marked(one, pytest.mark.slow) for one in listed]


def sampled(values: Iterable[Any], *kept: Any, share: int = 3) -> list[Any]:
    """Parameters of a test, of which only those that are kept and one in ``share`` others run.

    Which ones their names decide, so that a new parameter moves no other one in or out. The rest is
    ``explored``: it runs with ``--everything``.

    Raises:
        ValueError: If one that is kept is none of them.
    """
    listed = list(values)
    if strangers := [one for one in kept if one not in map(_plain, listed)]:
        raise ValueError(f"not among the parameters: {strangers}")
    return [
        one
        if _plain(one) in kept or zlib.crc32(str(_plain(one)).encode()) % share == 0
        else _marked(one, pytest.mark.explored)
        for one in listed
    ]


def sample_slow(items: Iterable[pytest.Item]) -> None:
    """Mark all but one in ``SHARE`` of the parameters of a slow test as explored.

    Of tests that are ``sampled``, and of slow ones that have ``MANY`` parameters or more; with
    ``--quick`` all but one in ``QUICK_SHARE`` of any test that has ``QUICK_MANY``. What needs the
    reference checkpoints is left alone: each of them is there once. Which ones are left their names
    decide.
    """
    tests: dict[tuple[str, bool], list[pytest.Item]] = {}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if not hasattr(item, "callspec") or "explored" in marks:
            continue
        is_slow = bool(marks & {"slow", "peers"}) and "reference" not in marks
        key = item.nodeid.partition("[")[0], is_slow or "sampled" in marks
        tests.setdefault(key, []).append(item)
    for (_, is_slow), own in tests.items():
        many, share = (MANY, SHARE) if is_slow else (QUICK_MANY, QUICK_SHARE)
        if len(own) >= many and (is_slow or _chosen["quick"]):
            own.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
            for item in own[-(-len(own) // share) :]:
                item.add_marker(pytest.mark.explored)


def unexplored(items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Divide tests: those that run where not everything does, and those that do not."""
    kept, left = [], []
    for item in items:
        (left if item.get_closest_marker("explored") else kept).append(item)
    return kept, left


def _plain(value: Any) -> Any:
    """A parameter without the marks that it has."""
    if not hasattr(value, "marks"):
        return value
    return value.values[0] if len(value.values) == 1 else value.values


def _marked(value: Any, mark: pytest.MarkDecorator) -> Any:
    plain, marks = _plain(value), getattr(value, "marks", ())
    values = plain if isinstance(plain, tuple) else (plain,)
    return pytest.param(*values, marks=(*marks, mark))
