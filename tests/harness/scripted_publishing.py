"""Lines of requests whose publishing does what a test gives it to do, group after group."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from packhorse.clock import Clock, SystemClock
from packhorse_services.publisher.outbox.request import Pending
from packhorse_services.publisher.publish.request_intake import RequestIntake
from tests.harness.clock import ManualClock


class ScriptedPublishing:
    """Publishes by doing what it is given, group after group."""

    def __init__(self, *script: Callable[[Sequence[Pending]], None]) -> None:
        self._script = list(script)
        self.groups: list[int] = []
        self.steps = 0
        self.closed = False
        self.on_stop: Callable[[], None] = lambda: None

    def publish(self, group: Sequence[Pending]) -> None:
        self.groups.append(len(group))
        act = self._script.pop(0) if self._script else answer_all
        act(group)

    def reconcile(self) -> bool:
        return True

    def stop(self) -> None:
        self.on_stop()

    def close(self) -> None:
        self.closed = True


def answer_all(group: Sequence[Pending]) -> None:
    for pending in group:
        pending.answer(1)


def answer_first(group: Sequence[Pending]) -> None:
    group[0].answer(1)


def fail_with(error: BaseException) -> Callable[[Sequence[Pending]], None]:
    def fail(_: Sequence[Pending]) -> None:
        raise error

    return fail


class HastyClock(ManualClock):
    """Moves on by itself as far as somebody waits."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.advance(seconds)
        return event.is_set()


class Gate:
    """Holds a group back until the test opens it."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, group: Sequence[Pending]) -> None:
        self.reached.set()
        assert self.open.wait(120)
        answer_all(group)


@contextmanager
def running(
    publishing: ScriptedPublishing, clock: Clock | None = None, **options: Any
) -> Iterator[RequestIntake]:
    intake = RequestIntake(publishing, clock or SystemClock(), **options)
    intake.start()
    try:
        yield intake
    finally:
        intake.stop(120)
        assert intake.failure() is None
        assert publishing.closed
