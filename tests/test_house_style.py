"""House rules on words: first words of docstrings, names of files, and the glossary."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("maxtool", "tests", "benchmarks", "docs", "samples")
RECORDED = ROOT / "tests" / "data"
GLOSSARY = ROOT / "docs" / "glossary.md"

# A docstring begins with a noun or a verb, which names the thing. These words name nothing.
REFUSED_WORDS = """
    after although always among and as at because before besides beyond but by everybody everything
    for from he how however if in instead it its neither never no nobody none nor not nothing of on
    once only or over since so somebody something somewhere such than that their them
    there these they this those though through told twice under unless until what whatever when
    whenever where whereas wherever whether which whichever while who whoever whose why with within
    without you
"""
REFUSED = frozenset(REFUSED_WORDS.split())

# Phrases that a native reader stumbles over, and what is written instead.
PHRASES = {
    r"\bunder way\b": "in flight",
    r"(?<!there )\bis no (tensor|module|index|list|tuple|text|file|number|buffer)\b": "is not a",
    r"\bnone if no one\b": "None if there is none",
}

# Files that Python and pytest call by these names.
FIXED_NAMES = {"__init__.py", "conftest.py"}
MOST_FILES_OF_A_NAME = 3

ROW = re.compile(r"\| (?P<word>[^|]+) \| (?P<meaning>[^|]+) \| `(?P<file>[^`|]+)` \|")


@cache
def sources() -> list[Path]:
    """Return the Python files of the repository, without the scripts beside recorded data."""
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    return [file for file in files if not file.is_relative_to(RECORDED)]


def docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring of a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def first_word(text: str) -> str:
    """Return the first word in lower case; empty for code, numbers and hyphenated words."""
    match = re.match(r"[A-Za-z]+(?![A-Za-z]|-)", text)
    return match[0].lower() if match else ""


def named(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@pytest.mark.long
def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    wrong = [
        f"{named(file)}:{line}: {text.splitlines()[0]}"
        for file in sources()
        for line, text in docstrings(file)
        if first_word(text) in REFUSED
    ]
    assert not wrong, "begin with a noun or a verb:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What it is.", "what"),
        ("``x`` of it.", ""),
        ("As-is copies.", ""),
        ("Return it.", "return"),
    ],
)
def test_the_first_word_is_read(text: str, expected: str) -> None:
    assert first_word(text) == expected


@pytest.mark.parametrize("phrase", PHRASES)
def test_phrases_that_are_not_used(phrase: str) -> None:
    files = [*sources(), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    wrong = [
        f"{named(file)}: {match[0]}"
        for file in files
        if file != Path(__file__).resolve()
        for match in re.finditer(phrase, file.read_text(encoding="utf-8"), re.IGNORECASE)
    ]
    assert not wrong, f"write {PHRASES[phrase]!r}"


def test_no_file_name_is_used_more_than_three_times() -> None:
    used = Counter(file.name for file in sources() if file.name not in FIXED_NAMES)
    assert not {name: count for name, count in used.items() if count > MOST_FILES_OF_A_NAME}


def test_the_glossary_names_what_is_there() -> None:
    rows = list(ROW.finditer(GLOSSARY.read_text(encoding="utf-8")))
    assert len(rows) > 20
    words = [row["word"].strip() for row in rows]
    assert words == sorted(words, key=str.casefold), "rows are in alphabetical order"
    for row in rows:
        file = ROOT / row["file"]
        assert file.is_file(), f"{row['word']}: {row['file']} is gone"
        stem = re.sub(r"[\s-]+", r"[\\s_-]*", row["word"].strip().casefold())
        text = f"{row['file']}\n{file.read_text(encoding='utf-8')}"
        assert re.search(stem, text.casefold()), row[0]


def test_the_glossary_is_linked() -> None:
    for document in (ROOT / "README.md", ROOT / "docs" / "architecture.md"):
        assert "glossary.md" in document.read_text(encoding="utf-8"), document.name
