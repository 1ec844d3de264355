"""Threads are used again, and as many there are as work is under way."""

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue

import pytest
import uvloop

from packhorse.runtime.threads import LoopWakeups, Threads
from tests.harness.waiting import eventually


def names(prefix: str) -> set[str]:
    return {one.name for one in threading.enumerate() if one.name.startswith(prefix)}


def test_everything_runs_at_once_and_threads_are_used_again() -> None:
    threads, together = Threads("crowd"), threading.Barrier(5)
    for _ in range(3):
        for _ in range(4):
            threads.submit(lambda: together.wait(120) and None)
        together.wait(120)
        eventually(lambda: threads._idle == 4, what="all wait for work")
    assert names("crowd-") == {f"crowd-{number}" for number in range(1, 5)}


def test_idle_threads_end() -> None:
    threads = Threads("brief", idle_s=0.5)
    threads.submit(lambda: None).result(120)
    eventually(lambda: not names("brief-"), what="it has ended")
    assert threads._idle == 0


def test_no_work_is_forgotten_while_threads_end() -> None:
    threads = Threads("briefest", idle_s=0.001)
    for _ in range(300):
        threads.submit(lambda: None).result(120)
    threads.shutdown()  # with so short a time one may wait on (`Threads._next`)
    eventually(lambda: not names("briefest-"), what="they have ended")
    assert threads._idle == 0


class RobbedQueue(SimpleQueue[Callable[[], None]]):
    """What is handed to the first thread that gives up is taken by another one meanwhile."""

    def __init__(self, threads: Threads) -> None:
        self._threads, self._gets = threads, 0

    def get(self, block: bool = True, timeout: float | None = None) -> Callable[[], None]:
        self._gets += 1
        if self._gets == 1:
            self._threads.submit(lambda: None)
            raise Empty
        if self._gets == 2:
            super().get()()
            self._threads._idle += 1
        return super().get(block, timeout)


def test_a_thread_whose_work_another_one_has_taken_ends_too() -> None:
    threads = Threads("robbed", idle_s=0.5)
    threads._handed = RobbedQueue(threads)
    threads.submit(lambda: None)
    eventually(lambda: not names("robbed-"), what="it has ended")
    assert threads._idle == 0


class WatchedCondition(threading.Condition):
    """More work comes as soon as a thread has decided to end."""

    def __init__(self, threads: Threads, more: Callable[[], object]) -> None:
        super().__init__()
        self._threads, self._more, self._is_next_to_end = threads, more, False

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        was, self._is_next_to_end = self._is_next_to_end, self._threads._idle == 1
        if was and not self._threads._idle:
            self._threads.submit(self._more)


def test_work_that_comes_while_the_only_thread_ends_is_not_forgotten() -> None:
    threads, done = Threads("leaving", 1, idle_s=0.001), threading.Event()
    threads._changed = WatchedCondition(threads, done.set)
    threads.submit(lambda: None)
    # With so short a time one may wait on (`Threads._next`), until there is more to do.
    eventually(lambda: done.wait(2.0) or threads.submit(lambda: None) is None)


def test_work_that_hangs_keeps_nothing_else_waiting() -> None:
    threads, end, done = Threads("stuck"), threading.Event(), threading.Event()
    threads.submit(lambda: end.wait(120) and None)
    threads.submit(done.set)
    assert done.wait(120)
    end.set()


def test_the_end_of_submitted_work_is_reported_with_its_error() -> None:
    threads = Threads("reported")

    def fail() -> None:
        raise ValueError("no")

    assert threads.submit(lambda: None).result(120) is None
    assert isinstance(threads.submit(fail).exception(120), ValueError)


def test_what_comes_beyond_the_most_threads_waits_its_turn() -> None:
    threads, end, order = Threads("few", 2), threading.Event(), list[int]()
    stuck = [threads.submit(end.wait, 120) for _ in range(2)]
    later = [threads.submit(order.append, number) for number in range(3)]
    assert later[1].cancel()
    assert names("few-") == {"few-1", "few-2"}
    end.set()
    assert [one.result(120) for one in stuck] == [True, True]
    assert later[0].result(120) is later[2].result(120) is None
    assert sorted(order) == [0, 2]


def test_stopped_threads_end_their_work_and_take_no_more() -> None:
    threads, end, done = Threads("stopping", 1), threading.Event(), threading.Event()
    under_way = threads.submit(end.wait, 120)
    taken, dropped = threads.submit(done.set), Threads("unused")
    threads.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="stopped"):
        threads.submit(done.set)
    end.set()
    threads.shutdown()
    assert under_way.done()
    assert taken.done()
    assert done.is_set()
    eventually(lambda: not names("stopping-"), what="they have ended")
    dropped.shutdown()


def test_stopped_threads_cancel_what_waits_if_asked() -> None:
    threads, end = Threads("cancelling", 1), threading.Event()
    threads.submit(end.wait, 120)
    waits = threads.submit(end.wait, 120)
    threads.shutdown(wait=False, cancel_futures=True)
    assert waits.cancelled()
    end.set()
    threads.shutdown()


def test_asyncio_takes_them_as_its_own() -> None:
    async def blocking() -> str:
        asyncio.get_running_loop().set_default_executor(Threads("own", 1))
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    assert asyncio.run(blocking()) == "own-1"
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(blocking()) == "own-1"


def test_work_that_fails_after_its_waiter_has_gone_is_no_error_of_the_event_loop() -> None:
    threads, may_end, reported = Threads("late"), threading.Event(), list[object]()

    def fail() -> None:
        may_end.wait(120)
        raise OSError("the journal is away")

    async def play() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        work = threads.submit(fail)
        with pytest.raises(TimeoutError):
            await LoopWakeups().result(work, 0)
        may_end.set()
        with pytest.raises(OSError, match="away"):
            await LoopWakeups().result(work, 120)
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(play())
    assert not reported


class CountedWakeups(LoopWakeups):
    """Counts how often the loop was woken."""

    wakings = 0

    def _hand_over(self) -> None:
        self.wakings += 1
        super()._hand_over()


def test_what_ends_together_wakes_the_loop_once() -> None:
    async def wakings() -> int:
        wakeups, works = CountedWakeups(), [Future[int]() for _ in range(5)]
        waits = [asyncio.ensure_future(wakeups.result(work, 120)) for work in works]
        await asyncio.sleep(0)
        for number, work in enumerate(works):  # the loop can't run meanwhile
            work.set_result(number)
        assert await asyncio.gather(*waits) == [0, 1, 2, 3, 4]
        return wakeups.wakings

    assert asyncio.run(wakings()) == 1


def test_a_wait_for_a_thread_ends_as_the_work_or_the_time_does() -> None:
    async def ends() -> None:
        wakeups, failed, given_up = LoopWakeups(), Future[int](), Future[int]()
        failed.set_exception(ValueError("why"))
        with pytest.raises(ValueError, match="why"):
            await wakeups.result(failed, 120)
        given_up.cancel()
        given_up.set_running_or_notify_cancel()
        with pytest.raises(asyncio.CancelledError):
            await wakeups.result(given_up, 120)
        late: Future[int] = Future()
        with pytest.raises(TimeoutError):
            await wakeups.result(late, 0)
        late.set_result(1)  # nobody waits any more
        await asyncio.sleep(0)
        assert await wakeups.result(late, 120) == 1

    asyncio.run(ends())
