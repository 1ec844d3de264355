"""Threads for what comes now and then: made when needed, used again, gone when idle."""

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
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
                self._alive += 1
                name = f"{self._name}-{next(self._numbers)}"
                threading.Thread(target=self._live, args=(work,), name=name, daemon=True).start()
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


def _do(end: Future[T], work: Callable[[], T]) -> None:
    if not end.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        end.set_exception(error)
    else:
        end.set_result(result)


async def shared_result(work: Future[T], timeout: float) -> T:
    """Return the result of work that others may wait for too; it goes on when this wait ends.

    Raises TimeoutError after `timeout` seconds, and what the work failed with.
    """
    answer = asyncio.wrap_future(work)
    answer.add_done_callback(_retrieve)
    async with asyncio.timeout(timeout):
        return await asyncio.shield(answer)


def _retrieve(answer: asyncio.Future[T]) -> None:
    # asyncio logs a failure that nobody has retrieved, as after a wait that ended before the work.
    if not answer.cancelled():
        answer.exception()
