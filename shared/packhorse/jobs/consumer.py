"""What does jobs: a consumer for topics, what it returns, and what it is given beside the job."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol, cast

from psycopg import Connection

from packhorse.errors import Permanent
from packhorse.jobs.job import Job


class Outcome(StrEnum):
    """How an attempt ended."""

    OK = "OK"
    FAILED = "FAILED"
    """To be tried again, as often as the queue allows."""
    CANCEL = "CANCEL"
    """Not to be tried again."""
    ASYNC = "ASYNC"
    """Not ended: whoever has the handle will say how. The job stays ACTIVE, and its place taken."""


class Cancel(Exception):
    """Raise it in a consumer for a job that trying again would not help: it is in ERROR."""


class Retry(Exception):
    """Raise it in a consumer for a job that is to be tried again, as FAILED does.

    `after` is how long to wait instead of the queue's delay; if it only `lengthens`, the queue's
    holds where that is longer.
    """

    def __init__(
        self, why: str = "", *, after: timedelta | None = None, lengthens: bool = False
    ) -> None:
        super().__init__(why)
        self.after, self.lengthens = after, lengthens


LONGEST_RETRY_DELAY = timedelta(days=3660)


@dataclass(frozen=True, slots=True)
class Result:
    """What a consumer returns; a bare `Outcome` is as good, `None` is OK, an exception FAILED.

    Raises `TypeError` or `ValueError`, in the consumer, for what could not be stored: the worker
    has other jobs too.
    """

    outcome: Outcome
    message: str = ""
    retry_delay: timedelta | None = None
    """With FAILED: how long to wait, instead of the queue's delay; 3660 days at most."""
    lengthens: bool = False
    """Whether the queue's delay holds where it is longer than `retry_delay`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", Outcome(self.outcome))
        if not isinstance(self.message, str):
            raise TypeError(f"a result's message is a text, not {type(self.message).__name__}")
        delay = self.retry_delay
        if delay is None:
            return
        if not isinstance(delay, timedelta):
            raise TypeError(f"a retry_delay is a timedelta, not {type(delay).__name__}")
        if not timedelta(0) <= delay <= LONGEST_RETRY_DELAY:
            raise ValueError(f"a retry_delay is 0 to {LONGEST_RETRY_DELAY.days} days, not {delay}")


class JobHandle(Protocol):
    """Ends a job that was left with `Outcome.ASYNC`, from any thread of the same process."""

    def finish(self, result: Result | Outcome) -> None:
        """End it. Raises `JobLost`, also the second time."""
        ...


class JobContext(Protocol):
    """What a consumer has beside the job; for the attempt's thread, unless it says otherwise."""

    def completion(self) -> AbstractContextManager[Connection]:
        """Open a transaction at whose end the job is SUCCEEDED: its effects happen exactly once.

        With the rights of the database's login; leave it with an exception to roll all back. Raises
        `JobLost`.
        """
        ...

    def check(self, connection: Connection) -> None:
        """Hold the attempt until the connection's transaction ends. Raises `JobLost`."""
        ...

    def tie_to_lease(self, connection: Connection) -> None:
        """Let the session end, and its locks with it, once another worker may have the job.

        A process that is paused would keep them for as long as it is. Use a connection that serves
        this attempt alone. Raises `JobLost`.
        """
        ...

    @property
    def stop_requested(self) -> bool:
        """Whether to end soon: somebody asks, the process ends, the time is over, or it is lost."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait, at most until a stop is requested; returns whether it is."""
        ...

    def init_progress(self, steps: int, eta: timedelta | None = None) -> None:
        """Say how many steps there are."""
        ...

    def progress(self, step: int, message: str = "", eta: timedelta | None = None) -> None:
        """Say how far it is; stored at once a second at most, and with the result."""
        ...

    def log(self, line: str) -> None:
        """Add a line to the job's log, of which the newest are kept."""
        ...

    def set_property(self, name: str, value: Any) -> None:
        """Leave something for whoever looks at the job, or for the next attempt (`Job.extra`)."""
        ...

    def handle(self) -> JobHandle:
        """Return what ends the job after `Outcome.ASYNC`."""
        ...


ContextConsumer = Callable[[Job, JobContext], Result | Outcome | None]
Consumer = ContextConsumer | Callable[[Job], Result | Outcome | None]
"""A function of the job, or of job and context, or an object that is called as one."""


class InvalidConsumer(Permanent):
    """What was given as a consumer can't do a job when it is called; the text says why."""


def with_context(consumer: Consumer) -> ContextConsumer:
    """Return what is called with job and context, whether the consumer takes both or the job only.

    Raises `InvalidConsumer` for one that takes neither, and as `require_consumer` does.
    """
    require_consumer(consumer)
    try:
        taken = inspect.signature(consumer)
    except ValueError:  # it is written in C, and says nothing
        return cast(ContextConsumer, consumer)
    if _takes(taken, 2):
        return cast(ContextConsumer, consumer)
    if not _takes(taken, 1):
        raise InvalidConsumer(
            f"{_name(consumer)}{taken} can't be called with a job, nor with job and context"
        )
    alone = cast(Callable[[Job], Result | Outcome | None], consumer)
    return lambda job, _context: alone(job)


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _name(consumer: object) -> str:
    return getattr(consumer, "__qualname__", None) or type(consumer).__qualname__


def require_consumer(consumer: object) -> None:
    """Raise `InvalidConsumer` for what would do nothing, whatever it is called with."""
    name = _name(consumer)
    if inspect.isclass(consumer):
        raise InvalidConsumer(f"{name} is a class; give an object of it: {name}(…)")
    if not callable(consumer):
        raise InvalidConsumer(f"{name} can't be called; give a function")
    if _is(inspect.iscoroutinefunction, consumer) or _is(inspect.isasyncgenfunction, consumer):
        raise InvalidConsumer(
            f"{name} is an async function, and consumers are called in threads; give a plain "
            "function, which may call asyncio.run(…)"
        )
    if _is(inspect.isgeneratorfunction, consumer):
        raise InvalidConsumer(f"{name} is a generator function: to call it does nothing")


def _is(kind: Callable[[Any], bool], consumer: Any) -> bool:
    return kind(consumer) or kind(getattr(consumer, "__call__", None))  # noqa: B004
