"""How much the tests do: with ``--quick``, what shows most faults in half the time.

What is compiled in the tests' own process is then not optimised by LLVM, and property tests draw
fewer examples. Programs that a test starts compile as users do either way, and so does a test with
the fixture ``optimised``.
"""

from __future__ import annotations

_chosen = {"quick": False}


def be_quick() -> None:
    """Before the tests are imported: some of them describe targets when they are."""
    from maxtool.compiler import target

    _chosen["quick"] = True
    target.OPT_LEVEL = 0


def examples(quick: int, full: int) -> int:
    """How many examples a property test draws."""
    return quick if _chosen["quick"] else full
