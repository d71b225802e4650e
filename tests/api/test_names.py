"""Every name of the reference documents is here, fits, and has a test; docs/api.md says so."""

from __future__ import annotations

import ast
import tomllib
from functools import cache

import pytest

from docs.api_names import ROOT, Name, load
from docs.api_table import BEGIN, END, PAGE, PROOFS, problems_of, table

NAMES = load()


@pytest.mark.parametrize("name", NAMES, ids=lambda name: f"{name.document}:{name.name}")
def test_the_name_is_here_with_its_parameters(name: Name) -> None:
    assert not problems_of(name)


def test_a_missing_name_would_fail() -> None:
    parameters = (("types", "variadic positional"), ("weights", "keyword-only", "0"))
    assert problems_of(Name("d", "max.nn.Absent", "class")) == ["maxtool.nn.Absent does not exist"]
    assert problems_of(Name("d", "max.nn.Module.absent", "method", ()))
    assert problems_of(Name("d", "max.nn.Module.sublayers", "method", ()))
    assert problems_of(Name("d", "max.nn.Module.state_dict", "property"))
    wrong = problems_of(Name("d", "max.nn.Module.compile", "method", parameters))
    assert len(wrong) == 2  # another name, another default
    wrong = problems_of(Name("d", "max.nn.Module.set_shared_weight", "method", ()))
    assert len(wrong) == 2  # two more that must be given


def proofs() -> dict[str, str]:
    return tomllib.loads(PROOFS.read_text(encoding="utf-8"))


def test_every_name_has_a_proof_and_nothing_else_has() -> None:
    assert set(proofs()) == {name.name for name in NAMES}


@cache
def functions_in(file: str) -> set[str]:
    """The test functions of a file, and methods as ``Class::function``."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    result = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        methods = (node.name for node in owner.body if isinstance(node, ast.FunctionDef))
        result |= {f"{owner.name}::{method}" for method in methods}
    return {name for name in result if name.split("::")[-1].startswith("test_")}


@pytest.mark.parametrize("path", sorted(set(proofs().values())))
def test_the_named_test_exists(path: str) -> None:
    file, _, test = path.partition("::")
    assert test in functions_in(file)


def test_the_table_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    inside = page.partition(BEGIN)[2].partition(END)[0]
    assert inside.strip() == table(NAMES).strip(), "run python -m docs.api_table"
