"""Progress of long work, on terminals and elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from maxtool import artifact
from maxtool.cli import progress
from maxtool.cli.output import Output
from maxtool.cli.progress import CLEAR, Meter, listened, shown
from maxtool.cli.text import elided

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "data" / "tiny-llama"
MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def meter(*stages: tuple[str, int], steps: int = 0) -> tuple[Meter, Clock]:
    clock = Clock()
    result = Meter(clock)
    result.steps(steps)
    for name, nbytes in stages:
        result.stage(name, nbytes)
    return result, clock


def test_stages_are_numbered_and_timed() -> None:
    result, clock = meter(("lowering", 0), ("linking", 0), ("compiling decode", 0), steps=5)
    clock.seconds = 4.2
    assert result.line() == "[3/5] compiling decode 00:04"
    assert result.drawn(80) == "[3/5] compiling decode  00:04"
    clock.seconds = 3 * 3600 + 62
    assert result.line() == "[3/5] compiling decode 3:01:02"


def test_bytes_are_counted_in_their_stage() -> None:
    result, clock = meter(("converting", 4 * MIB))
    result(MIB)
    assert result.line() == "converting 25% of 4.00 MiB 00:00"
    assert result.drawn(79).endswith("─  25%  1.00 MiB of 4.00 MiB  00:00")
    clock.seconds = 2.0
    bar = "━" * 5 + "─" * 17
    assert result.drawn(79) == f"converting  {bar}  25%  1.00 MiB of 4.00 MiB  512 KiB/s  00:02"
    result.stage("hashing", 2 * MIB)
    result(2 * MIB)
    assert result.line() == "hashing 100% of 2.00 MiB 00:00"


def test_other_things_than_bytes_are_counted_with_the_time_left() -> None:
    clock = Clock()
    result = Meter(clock)
    result.stage("reading", 4096, "token")
    clock.seconds = 5.0
    assert result.line() == "reading 0% of 4,096 tokens 00:05"
    result(1024)
    clock.seconds = 30.0
    assert result.drawn(79).endswith("  25%  1,024 of 4,096 tokens  01:30 left  00:30")


@given(
    st.text(st.characters(exclude_categories=["C", "M"]), max_size=60),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 41),
    st.floats(0, 1e6),
    st.integers(20, 120),
)
def test_a_drawing_fits(name: str, nbytes: int, done: int, seconds: float, width: int) -> None:
    result, clock = meter((name, nbytes), steps=3)
    result(done)
    clock.seconds = seconds
    assert cell_len(result.drawn(width)) <= width


@given(st.text(st.characters(exclude_categories=["C", "M"])), st.integers(0, 50))
def test_elided_text_fits(text: str, most: int) -> None:
    short = elided(text, most)
    assert cell_len(short) <= most
    assert short == text if cell_len(text) <= most else len(short) < len(text)


def test_the_end_of_a_name_is_kept() -> None:
    name = "model.language_model.layers.17.self_attn.q_proj.weight"
    assert elided(name, 41) == f"model.lang…{name[-30:]}"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SELDOM", 0.01)
    monkeypatch.setattr(progress, "OFTEN", 0.01)


def written(stream: io.StringIO, text: str) -> str:
    """Return the text written to a stream, once ``text`` is part of it."""
    deadline = time.monotonic() + 60
    while text not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.005)
    return stream.getvalue()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("width", [None, 40])
def test_what_is_shown(width: int | None) -> None:
    stream = io.StringIO()
    result, _ = meter(("compiling", 0), steps=2)
    with shown(result, stream, None if width is None else lambda: width):
        assert "[1/2] compiling" in written(stream, "compiling")
        result.stage("linking")
        assert "[2/2] linking" in written(stream, "linking")
    last = stream.getvalue()
    assert last.endswith("00:00\n" if width is None else CLEAR)
    assert (CLEAR in last) == (width is not None)
    assert ("\n" in last) == (width is None)
    time.sleep(0.05)
    assert stream.getvalue() == last


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("settings", [{"quiet": True}, {"json_mode": True}, {}])
def test_quiet_and_json_are_told_nothing(
    settings: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with Output(**settings).progress("converting", MIB) as advance:
        advance(MIB // 2)
        if settings:
            time.sleep(0.05)
        else:
            written(stream, "converting 50% of 1.00 MiB")
    assert bool(stream.getvalue()) == (not settings)


class Told:
    """Keeps what a compilation says of its stages."""

    def __init__(self) -> None:
        self.count = 0
        self.stages: list[list[object]] = []

    def steps(self, count: int) -> None:
        self.count = count

    def stage(self, name: str, nbytes: int = 0) -> None:
        self.stages.append([name, nbytes, 0])

    def __call__(self, done: int) -> None:
        self.stages[-1][2] += done  # type: ignore[operator]


@contextmanager
def compiled(folder: Path, **options: object) -> Iterator[Told]:
    request = artifact.Request(source=MODEL, output=folder / "out", **options)  # type: ignore[arg-type]
    told = Told()
    artifact.make(artifact.prepare(request), told)
    yield told


@pytest.mark.long
def test_a_compilation_counts_every_byte_once(tmp_path: Path) -> None:
    with compiled(tmp_path, check=True) as told:
        names = [name for name, *_ in told.stages]
        assert told.count == len(names)
        assert names == [
            "lowering forward, prefill, decode",
            "compiling forward, prefill, decode",
            "generating machine code",
            "writing weights",
            "hashing the source",
            "checking against the reference",
        ]
        assert all(done == nbytes for _, nbytes, done in told.stages)
        read = ("model.safetensors", "config.json", "tokenizer.model", "tokenizer_config.json")
        source = sum((MODEL / name).stat().st_size for name in read)
        weights = (tmp_path / "out" / "weights.bin").stat().st_size
        assert [nbytes for _, nbytes, _ in told.stages] == [0, 0, 0, weights, source, 0]


def test_who_listens_hears_of_what_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SENT", 0.001)
    heard: list[str] = []
    monkeypatch.setattr(progress.Meter, "_time", "00:00")
    told = "bringing 25% of 4.00 MiB 00:00"
    with listened(heard.append), Output(quiet=True).progress("bringing", 4 * MIB) as advance:
        advance(MIB)
        end = time.monotonic() + 60
        while heard[-1:] != [told] and time.monotonic() < end:
            time.sleep(0.001)
    assert told in heard
    count = len(heard)
    with Output(quiet=True).progress("bringing"):
        time.sleep(0.01)
    assert len(heard) == count


def test_a_stage_with_details() -> None:
    result, _ = meter(("building", 0))
    result.detail = lambda: "x: converting 25%"
    assert result.line() == "building 00:00  x: converting 25%"
    assert result.drawn(60) == "building  x: converting 25%  00:00"
