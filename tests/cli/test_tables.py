"""Tables as wide as a terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from maxtool.cli import tables, text
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
    assert printed(64) == [
        "Parameter      Made of                                  Shape",
        "attn.q.weight  model.layers.0.self_attn.q_proj.weight,  [48, 40]",
        "               transpose",
        "norm.weight                                             [40]",
    ]


def test_a_name_that_is_too_long_is_elided(printed: Printed) -> None:
    assert printed(60)[1:3] == [
        "attn.q.weight  model.la…0.self_attn.q_proj.weight,  [48, 40]",
        "               transpose",
    ]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z", "M"]) | st.just(" ")))
def test_fold_keeps_every_word_that_fits(written: str) -> None:
    lines = text.fold(written, 8)
    assert all(cell_len(line) <= 8 for line in lines)
    words = [word for word in written.split(" ") if word]
    assert " ".join(lines).split() == [text.elided(word, 8) for word in words]


@pytest.mark.parametrize("count", [3, tables.MAX_DRAWN + 1])
def test_names_are_elided_where_the_terminal_is_narrow(
    count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"model.language_model.layers.{n}.self_attn.q_proj.weight" for n in range(count)]
    columns = [("name", "left"), ("type", "left"), ("bytes", "right")]
    for width in (58, None):
        console = Console(width=width, force_terminal=width is not None, color_system=None)
        monkeypatch.setattr(Output, "stdout", console)
        tables.draw_names(Output(), columns, [(name, "F32", "4 KiB") for name in names])
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == count + 1
        shown = [line.split()[0] for line in lines[1:]]
        if width is None:
            assert shown == names
        else:
            assert all(cell_len(line.rstrip()) <= width for line in lines)
            assert len(set(shown)) == count
            assert all("…" in name and name.endswith("q_proj.weight") for name in shown)


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
