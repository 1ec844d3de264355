"""Threads for what comes now and then: made when needed, used again, gone when idle."""

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_Work = Callable[[], None]

_IDLE_S = 10.0
"""How long a thread without work stays."""


class Threads(ThreadPoolExecutor):
    """An executor of up to `most` threads, each of which ends when it has been idle for a while.

    Without `most`, its caller bounds how many. They are daemons: work that hangs keeps no process
    alive. It is a `ThreadPoolExecutor` by name only: asyncio takes nothing else as a loop's own.
    """

    def __init__(self, name: str, most: int | None = None, *, idle_s: float = _IDLE_S) -> None:
        super().__init__(most or 1, name)
        self._name, self._most, self._idle_s = name, most, idle_s
        self._changed = threading.Condition()
        self._handed: SimpleQueue[_Work | None] = SimpleQueue()  # one item an idle thread
        self._waiting: deque[tuple[Future[Any], _Work]] = deque()
        self._alive = self._idle = 0
        self._stopped = False
        self._numbers = itertools.count(1)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin work, at once where a thread may be had, and return its end."""
        end: Future[T] = Future()
        work = partial(_do, end, partial(fn, *args, **kwargs))
        with self._changed:
            if self._stopped:
                raise RuntimeError("these threads have been stopped: begin no work on them")
            if self._idle:
                self._idle -= 1
                self._handed.put(work)
            elif self._most is None or self._alive < self._most:
                name = f"{self._name}-{next(self._numbers)}"
                threading.Thread(target=self._live, args=(work,), name=name, daemon=True).start()
                self._alive += 1  # not before: the machine may have no more threads
            else:
                self._waiting.append((end, work))
        return end

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; with `wait`, return when what was taken has been done."""
        with self._changed:
            self._stopped = True
            while cancel_futures and self._waiting:
                self._waiting.popleft()[0].cancel()
            for _ in range(self._idle):
                self._handed.put(None)
            self._idle = 0
            if wait:
                self._changed.wait_for(lambda: not self._alive)

    def _live(self, work: _Work | None) -> None:
        while work is not None:
            work()
            work = self._next()

    def _next(self) -> _Work | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()[1]
            if self._stopped:
                self._gone()
                return None
            self._idle += 1
        while True:
            # CPython 3.11 waits for ever where the time is over before it waits, as when a machine
            # is suspended right here. The thread counts as idle, so the next work ends the wait.
            try:
                if (work := self._handed.get(timeout=self._idle_s)) is not None:
                    return work
                with self._changed:
                    self._gone()
                    return None
            except Empty:
                with self._changed:
                    if self._idle:
                        self._idle -= 1
                        self._gone()
                        return None
            # An item was handed to the idle threads just now; one that came later may take it.

    def _gone(self) -> None:
        # Under the same lock as the decision to end: work that comes later begins a new thread.
        self._alive -= 1
        self._changed.notify_all()


class LoopThreads(Threads):
    """The threads of an event loop, which would wait at its end for whatever they do, for ever."""

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Take no more work, and begin none; what is under way ends with the process."""
        super().shutdown(wait=False, cancel_futures=True)


def _do(end: Future[T], work: Callable[[], T]) -> None:
    if not end.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        end.set_exception(error)
    else:
        end.set_result(result)


class LoopWakeups:
    """Waits of one event loop for work of other threads; what ends together wakes the loop once.

    asyncio wakes it for each. The loop is the one that waits first.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._notified = False

    async def result(self, work: Future[T], timeout: float) -> T:
        """Return the result of `work`; it goes on when this wait ends.

        Raises TimeoutError after `timeout` seconds, and what the work failed with.
        """
        loop = self._loop = self._loop or asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        work.add_done_callback(partial(self._end, loop, answer))
        late = loop.call_later(timeout, _give_up, answer)
        try:
            return await answer
        finally:
            late.cancel()

    def _end(
        self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], work: Future[T]
    ) -> None:
        """Note, in any thread, that work has ended."""
        self._ended.append((answer, work))
        if not self._notified:
            self._notified = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._notified = (
            False  # before it looks, so that what ends meanwhile is seen or notifies again
        )
        while self._ended:
            answer, work = self._ended.popleft()
            if answer.done():
                continue
            if work.cancelled():
                answer.cancel()
            elif (error := work.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(work.result())


def _give_up(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())
