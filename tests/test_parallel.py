"""Work in parts: every item once, errors passed on, one thread where there is little to do."""

from __future__ import annotations

import threading

import pytest

from maxtool import parallel
from maxtool.parallel import BEHIND, THREAD_PARTS, Behind, in_parts


@pytest.fixture(params=[1, 2, 64])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(parallel, "usable_cores", lambda: request.param)
    return int(request.param)


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize("total", [0, 1, 9, 10, 11, 1234])
def test_every_item_is_worked_on_once(total: int) -> None:
    parts = in_parts(total, 10, lambda part: range(part.start, part.stop))
    assert sorted(item for part in parts for item in part) == list(range(total))


def test_threads_are_bounded(cores: int) -> None:
    names = in_parts(1000, 1, lambda _part: threading.current_thread().name)
    assert len(set(names)) <= min(cores, parallel.MAX_THREADS)
    assert (threading.current_thread().name in names) == (cores == 1)


@pytest.mark.usefixtures("cores")
def test_little_work_starts_no_thread() -> None:
    names = in_parts(4 * THREAD_PARTS - 1, 1, lambda _part: threading.current_thread().name)
    assert set(names) == {threading.current_thread().name}


@pytest.mark.usefixtures("cores")
def test_errors_are_passed_on() -> None:
    def work(part: slice) -> None:
        if 77 in range(part.start, part.stop):
            raise ValueError("the item 77")

    with pytest.raises(ValueError, match="the item 77"):
        in_parts(100, 1, work)


def test_usable_cores() -> None:
    assert parallel.usable_cores() >= 1


@pytest.mark.usefixtures("cores")
def test_one_thread_if_asked() -> None:
    names = in_parts(1000, 1, lambda _part: threading.current_thread().name, threads=1)
    assert set(names) == {threading.current_thread().name}
    assert len(names) == 1000


def test_calls_behind_keep_their_order() -> None:
    made: list[int] = []
    with Behind() as behind:
        for number in range(50):
            behind.call(lambda number=number: made.append(number))  # type: ignore[misc]
        behind.finish()
        assert made == list(range(50))


def test_few_calls_are_behind() -> None:
    begun = threading.Semaphore(0)
    release = threading.Event()

    def work() -> None:
        begun.release()
        release.wait()

    with Behind() as behind:
        for _ in range(BEHIND):
            behind.call(work)
        begun.acquire()
        assert not begun.acquire(blocking=False)
        release.set()


def test_an_error_of_a_call_behind_is_raised() -> None:
    with pytest.raises(ZeroDivisionError), Behind() as behind:
        behind.call(lambda: 1 / 0)


def test_calls_behind_are_dropped_where_the_block_fails() -> None:
    begun, release, made = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        release.wait()

    with pytest.raises(KeyboardInterrupt), Behind() as behind:
        behind.call(work)
        behind.call(lambda: made.append(1))
        begun.wait()
        threading.Timer(0.05, release.set).start()
        raise KeyboardInterrupt
    assert not made
