"""Work in parts: every item once, errors passed on, one thread where there is little to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from maxtool import parallel
from maxtool.parallel import BEHIND, THREAD_PARTS, Behind, in_order, in_parts


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


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_keep_the_order_of_their_calls(threads: int) -> None:
    def slow(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        return number

    calls = [partial(slow, number) for number in range(30)]
    assert list(in_order(calls, threads)) == list(range(30))


def test_results_are_made_ahead_up_to_a_limit_and_to_a_pause() -> None:
    asked: list[int] = []

    def calls() -> Iterator[Callable[[], int] | None]:
        for number in range(20):
            if number == 10:
                yield None
            asked.append(number)
            yield partial(int, number)

    results = in_order(calls(), 2)
    ahead = []
    for number in range(20):
        assert next(results) == number
        ahead.append(len(asked) - number - 1)
    assert max(ahead) == 4
    assert ahead[5:10] == [4, 3, 2, 1, 0]


def test_an_error_comes_in_its_place_and_ends_the_threads() -> None:
    results = in_order([lambda: 1, lambda: 1 // 0, lambda: 2], 2)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert not [t for t in threading.enumerate() if t.name.startswith("ThreadPool")]


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_of_several_errors_the_first_is_told(threads: int) -> None:
    """Also where the calls themselves end with one, which is met early."""

    def calls() -> Iterator[Callable[[], float]]:
        yield lambda: 1.0
        yield lambda: 1 / 0
        yield lambda: 2.0
        raise OSError("there are no more")

    results = in_order(calls(), threads)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_results_that_nobody_takes_end_the_threads() -> None:
    results = in_order((partial(int, number) for number in range(100)), 3)
    next(results)
    results.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("ThreadPool")]


def test_a_call_in_order_starts_no_threads_of_its_own() -> None:
    def names() -> set[str]:
        return set(in_parts(1000, 1, lambda _part: threading.current_thread().name))

    assert {len(found) for found in in_order([names] * 4, 2)} == {1}


def test_the_only_call_starts_no_thread() -> None:
    """Threads would otherwise be started for each of thousands of small tensors."""
    here = threading.current_thread().name
    assert list(in_order([lambda: threading.current_thread().name], 4)) == [here]
    assert here not in in_order([lambda: threading.current_thread().name] * 2, 4)
    assert list(in_order([], 4)) == list(in_order([None], 4)) == []


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
