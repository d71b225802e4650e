"""docs/api_names.json is what the reference documents say."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from docs.api_names import DOCUMENTS, NAMES, dump, extract, load, parameters_of
from tests.api.examples import EXAMPLES, TYPOS, Example, printed, row, source_of, squeezed

# The beginnings of Python's statements, as the examples have them and prose and headings do not.
CODE = re.compile(
    r"\s*(from max|import |assert |print\(|@module|class \w+\(.*\):|def \w+\(|return |self\.|else:"
    r"|(for|if|with) .*:$|\w+(, \w+)* = |model\.\w+\(|add_layer_hook\(\w"
    r"|(?!Module|Tensor)\w+\.to\()"
)


def test_a_signature_is_read_with_kinds_and_defaults() -> None:
    result = parameters_of("(cls=None, /, name='', *, device=cpu:0, **kwargs)")
    assert result == (
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


def modules() -> list[ModuleType]:
    """The modules with examples."""
    files = sorted(Path(__file__).parent.glob("test_examples_*.py"))
    return [importlib.import_module(f"tests.api.{file.stem}") for file in files]


def examples() -> list[Example]:
    modules()
    unique = {(example.document, example.first): example for example in EXAMPLES}
    return sorted(unique.values(), key=lambda one: (one.document, one.first))


@pytest.mark.reference
@pytest.mark.parametrize("one", examples(), ids=lambda one: f"{one.document}:{one.first}")
def test_an_example_is_what_the_document_prints(reference: Path, one: Example) -> None:
    path = reference / "api" / f"{one.document}.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    said = squeezed(printed(one.document, lines, one.first, one.last))
    assert said in squeezed(source_of(one.test))


@pytest.mark.reference
@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_example_of_a_document_is_overlooked(reference: Path, document: str) -> None:
    """Every line that is a statement of Python lies in the lines of some test."""
    path = reference / "api" / f"{document}.txt"
    held = {
        number
        for one in examples()
        if one.document == document
        for number in range(one.first, one.last + 1)
    }
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    result = [(number, line) for number, line in lines if CODE.match(line)]
    assert len(result) > 5
    assert not [(number, line) for number, line in result if number not in held]


def test_every_typo_is_in_the_page() -> None:
    page = (NAMES.parent / "api.md").read_text(encoding="utf-8")
    assert not [typo for typo in TYPOS if row(typo) not in page]
