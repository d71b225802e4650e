"""Tables as wide as a terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from maxtool.cli import tables
from maxtool.cli.output import Output

COLUMNS = [("Parameter", "left"), ("Made of", "left"), ("Shape", "left")]
ROWS = [
    ["attn.q.weight", "model.layers.0.self_attn.q_proj.weight, transpose", "[48, 40]"],
    ["norm.weight", "", "[40]"],
]


Printed = Callable[[int | None], list[str]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    """The lines of the table on a terminal so wide, or piped."""

    def lines(width: int | None) -> list[str]:
        console = Console(width=width, force_terminal=width is not None)
        monkeypatch.setattr(Output, "stdout", console)
        tables.write(Output(), COLUMNS, ROWS, folds=1)
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.mark.parametrize("width", [None, 200])
def test_a_table_that_fits_has_a_line_a_row(printed: Printed, width: int | None) -> None:
    assert printed(width) == [
        "Parameter      Made of                                            Shape",
        "attn.q.weight  model.layers.0.self_attn.q_proj.weight, transpose  [48, 40]",
        "norm.weight                                                       [40]",
    ]


def test_a_column_folds_where_the_terminal_is_narrow(printed: Printed) -> None:
    assert printed(60) == [
        "Parameter      Made of                              Shape",
        "attn.q.weight  model.layers.0.self_attn.q_proj.     [48, 40]",
        "               weight, transpose",
        "norm.weight                                         [40]",
    ]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.just(" ")))
def test_fold_keeps_every_character(text: str) -> None:
    lines = tables.fold(text, 5)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(cell_len(line) <= 5 for line in lines)


SENTENCE = "wrote /data/folder/with/a/rather/long/name: 2.17 MiB, checked with 24 tokens"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("width", [None, 40])
def test_sentences_break_between_words(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stream: str,
    width: int | None,
) -> None:
    out = Output()
    console = Console(width=width, force_terminal=width is not None, stderr=stream == "stderr")
    monkeypatch.setattr(Output, stream, console)
    (out.say if stream == "stdout" else out.note)(SENTENCE)
    lines = [line.rstrip() for line in getattr(capsys.readouterr(), stream[3:]).splitlines()]
    assert " ".join(lines) == SENTENCE
    assert len(lines) == (1 if width is None else 3)
    paths = [word for line in lines for word in line.split() if "/" in word]
    assert paths == ["/data/folder/with/a/rather/long/name:"]
