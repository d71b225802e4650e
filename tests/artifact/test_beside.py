"""Weights are written beside the compiler: what is begun ends, with its result or its error."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from maxtool import artifact
from maxtool.artifact import machine_code
from maxtool.artifact.beside import Beside, CountBytes

MODEL = Path(__file__).resolve().parents[2] / "samples" / "fireside"


def test_jobs_follow_each_other_and_count_their_bytes() -> None:
    order: list[str] = []

    def work(name: str, count: CountBytes) -> str:
        order.append(name)
        count(3)
        count(4)
        return name.upper()

    with Beside() as beside:
        jobs = [beside.begin(lambda count, name=name: work(name, count)) for name in "ab"]
        for job, name in zip(jobs, "ab", strict=True):
            counted: list[int] = []
            assert job.result(counted.append) == name.upper()
            assert counted == [3, 4]
    assert order == ["a", "b"]


def test_an_error_of_a_job_is_raised_where_it_is_waited_for() -> None:
    def work(count: CountBytes) -> None:
        count(5)
        raise OSError("the disk is full")

    counted: list[int] = []
    with Beside() as beside:
        job = beside.begin(work)
        with pytest.raises(OSError, match="the disk is full"):
            job.result(counted.append)
    assert counted == [5]


def test_a_job_stops_where_nobody_waits_for_it() -> None:
    begun, rounds = threading.Event(), list[int]()

    def work(count: CountBytes) -> None:
        while True:
            count(1)
            rounds.append(1)
            begun.set()

    def later(_count: CountBytes) -> None:
        rounds.append(1 << 60)

    with pytest.raises(KeyboardInterrupt), Beside() as beside:
        beside.begin(work)
        beside.begin(later)
        assert begun.wait(60)
        raise KeyboardInterrupt
    ended = len(rounds)
    assert max(rounds) == 1
    assert not [one for one in threading.enumerate() if one.name.startswith("ThreadPool")]
    assert len(rounds) == ended


def test_nothing_is_left_where_code_generation_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(machine_code, "write", fail)
    request = artifact.Request(source=MODEL, output=tmp_path / "out")
    with pytest.raises(MemoryError):
        artifact.make(artifact.prepare(request))
    assert not list(tmp_path.iterdir())
