"""Lines of the reference documents that an example test covers, and their typos.

Examples are the documents' code as printed: ``max`` is ``maxtool``, the pages' lost indentation is
back, and the mistakes in ``TYPOS`` are corrected. ``test_documents.py`` compares each test with its
lines where the documents are at hand.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Example(NamedTuple):
    """A test that holds lines ``first`` to ``last`` of a document."""

    document: str
    first: int
    last: int
    test: Callable[..., Any]


class Typo(NamedTuple):
    """A document's mistake in one line, and the example's correction."""

    document: str
    line: int
    printed: str
    corrected: str
    why: str


EXAMPLES: list[Example] = []
TYPOS = [
    Typo(
        "module_graph",
        12,
        "in_dims, out_dims",
        "in_dim, out_dim",
        "the body uses `in_dim` and `out_dim`",
    ),
    Typo(
        "module_v3",
        83,
        "",
        "from max.experimental.tensor import Tensor",
        "`Tensor` is not imported",
    ),
    *(
        Typo("module_v3", line, "Accelerator())", "Accelerator()))", "a parenthesis is missing")
        for line in (167, 192, 355)
    ),
    *(
        Typo("module_v3", line, "float32))", "float32)))", "a parenthesis is missing")
        for line in (238, 239)
    ),
    Typo("weights", 79, "allocate(...)", "allocate()", "an ellipsis in place of the arguments"),
]
# The saved pages ran the text after an example into its last line.
GLUED = re.compile(
    r"(Constructing a graph|Terminology:|Device placement:|Because device is"
    r"|For CPU \(the default\)|For graph-level|Basic compilation|The lookup is defined"
    r"|Unlike PyTorch).*"
    r"|(?<=\))(allocate\(\)|forward\(\)|name)$|-$"
)


def example(document: str, first: int, last: int) -> Callable[[F], F]:
    """Mark a test as holding these lines of a document, counted from one."""

    def mark(test: F) -> F:
        EXAMPLES.append(Example(document, first, last, test))
        return test

    return mark


def squeezed(code: str) -> str:
    """Code without what formatting and this package's name change."""
    return re.sub(r"\s", "", re.sub(r"\bfrom max\b", "from maxtool", code))


def printed(document: str, lines: list[str], first: int, last: int) -> str:
    """The lines of an example with its typos corrected.

    Raises:
        ValueError: If a typo is not where the table says.
    """
    result = []
    for number in range(first, last + 1):
        line = lines[number - 1]
        if number == last:
            line = GLUED.sub("", line)
        for typo in TYPOS:
            if (typo.document, typo.line) == (document, number):
                line = corrected(line, typo)
        result.append(line)
    return "\n".join(result)


def corrected(line: str, typo: Typo) -> str:
    """The line without the typo."""
    if typo.printed not in line:
        raise ValueError(f"{typo.document}, line {typo.line}: no {typo.printed!r} in {line!r}")
    if not typo.printed:
        return f"{typo.corrected}\n{line}"
    return line.replace(typo.printed, typo.corrected)


def source_of(test: Callable[..., Any]) -> str:
    """The source of a test."""
    return inspect.getsource(inspect.unwrap(test))


def row(typo: Typo) -> str:
    """A typo as a row of the table in docs/api.md."""
    printed = f"`{typo.printed}`" if typo.printed else ""
    return f"| {typo.document}, {typo.line} | {printed} | `{typo.corrected}` | {typo.why} |"
