"""docs/api_names.json is what the reference documents say."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.api_names import DOCUMENTS, NAMES, dump, extract, load, parameters_of


def test_a_signature_is_read_with_kinds_and_defaults() -> None:
    found = parameters_of("(cls=None, /, name='', *, device=cpu:0, **kwargs)")
    assert found == (
        ("cls", "positional-only", "None"),
        ("name", "positional or keyword", "''"),
        ("device", "keyword-only", "'cpu:0'"),
        ("kwargs", "variadic keyword"),
    )
    assert parameters_of("(*types: Type[Any], weights: Map[str, X] | None = None)") == (
        ("types", "variadic positional"),
        ("weights", "keyword-only", "None"),
    )


def test_every_document_is_in_the_list() -> None:
    names = load()
    assert {name.document for name in names} == set(DOCUMENTS)
    assert NAMES.read_text(encoding="utf-8") == dump(names)


@pytest.mark.reference
def test_the_list_is_what_the_documents_say(reference: Path) -> None:
    assert extract(reference / "api") == load(), "run python -m docs.api_names FOLDER"


@pytest.mark.reference
@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_signature_of_a_document_is_overlooked(reference: Path, document: str) -> None:
    """Every line that ends a heading ``name()`` has its signature in the list."""
    lines = (reference / "api" / f"{document}.txt").read_text(encoding="utf-8").splitlines()
    headings = {
        line.strip().removesuffix("()").split(")")[-1]
        for line in lines
        if line.strip().endswith("()") and line.strip()[:-2].split(")")[-1].isidentifier()
    }
    known = {name.name.rpartition(".")[2] for name in load() if name.document == document}
    assert headings <= known
