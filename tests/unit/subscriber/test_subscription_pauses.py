"""How long a subscription that can't go on waits, and what it says meanwhile."""

import threading
from collections.abc import Callable
from typing import Any, cast

import psycopg
import pytest
from psycopg import Connection

from packhorse.wire.messages import DesiredState, SubscriptionState
from packhorse_services.subscriber.announce.subscription_report import SubscriptionReport
from packhorse_services.subscriber.commands.clear_commands import ClearCommands
from packhorse_services.subscriber.commands.control import DesiredControl, SubscriptionControl
from packhorse_services.subscriber.importing.context import SessionContext
from packhorse_services.subscriber.importing.session import Session
from packhorse_services.subscriber.importing.subscription import (
    Subscription,
    SubscriptionSettings,
)
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.failures import Fenced, JournalMismatch
from packhorse_services.subscriber.journal.position import Position
from packhorse_services.subscriber.snapshots.joining import SnapshotTurns
from tests.harness.clock import ManualClock

AWAY = psycopg.OperationalError("away")


class Waits(ManualClock):
    """A clock whose waits are over at once; it notes them, and ends the program after some."""

    def __init__(self, stopping: threading.Event) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.most = 8
        self._stopping = stopping

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        if len(self.waits) == self.most:
            self._stopping.set()
        return event.is_set()


class Held:
    """A lease that this worker has."""

    def wait(self, _timeout_s: float) -> int:
        return 1

    def epoch(self) -> int:
        return 1


class Joining:
    """Loads no snapshot."""

    journal = topic = None

    def __init__(self) -> None:
        self.turns = SnapshotTurns()


class Played:
    """A subscription whose every session begins with what `connect` does."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self.stopping = threading.Event()
        self.said: list[tuple[SubscriptionState, str, bool]] = []
        self.control = SubscriptionControl()
        self.clock, self.report = Waits(self.stopping), SubscriptionReport("main")
        unused = cast("Any", None)
        context = SessionContext(
            importer=unused,
            attempts=unused,
            clears=ClearCommands(),
            report=self.report,
            clock=self.clock,
            on_progress=self.say,
            control=self.control,
        )
        self.subject = Subscription(
            *(SubscriptionSettings("main"), connect, unused),
            *(cast("Any", Joining()), cast("Any", Held()), context),
        )

    def say(self, *, awaited: bool = False) -> None:
        """Note what would be announced."""
        state = self.report.state
        self.said.append((state.state, state.last_error, self.report.is_placed))

    def run(self, waits: int) -> list[float]:
        """Return how long it waited, so many times from now on."""
        return self._until(waits, self.subject._run)

    def work(self) -> list[float]:
        """Let one step be done, and return how long it waited behind it."""
        session = cast("Session", Steps())
        return self._until(1, lambda stopping: self.subject._work(session, stopping))

    def stand_still(self) -> list[float]:
        """Let it be stopped by a command for a while, and return how long it waited."""
        self.control.take({"main": DesiredControl(DesiredState.STOP)})
        waits = self._until(1, lambda stopping: self.subject._stand_still(1, stopping))
        self.control.take({})
        return waits

    def _until(self, waits: int, does: Callable[[threading.Event], None]) -> list[float]:
        self.stopping.clear()
        self.clock.waits, self.clock.most = [], waits
        does(self.stopping)
        return self.clock.waits


class Steps:
    """A session that imports well."""

    position = Position("main", "log", 1, Mark(0, "a"))

    def step(self) -> float:
        return 3.0


def failing(error: Exception) -> Callable[[], Connection]:
    def connect() -> Connection:
        raise error

    return connect


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (AWAY, (SubscriptionState.RUNNING, "OperationalError: away", False)),
        (JournalMismatch("cut"), (SubscriptionState.JOURNAL_MISMATCH, "cut", True)),
        (ValueError("a fault"), (SubscriptionState.RUNNING, "ValueError: a fault", True)),
        (Fenced("replaced"), None),
    ],
)
def test_it_waits_longer_each_time_and_says_why(
    error: Exception, said: tuple[SubscriptionState, str, bool] | None
) -> None:
    played = Played(failing(error))
    assert played.run(8) == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert played.said == ([said] * 8 if said else [])
    assert played.report.state.state is SubscriptionState.WAITING_FOR_LEASE, "it has ended"


def test_after_a_step_that_was_done_it_waits_as_at_first() -> None:
    played = Played(failing(AWAY))
    assert played.run(3) == [0.5, 1, 2]
    assert played.work() == [3.0]
    assert played.run(2) == [0.5, 1]


def test_one_that_was_stopped_says_so_and_waits_as_at_first_when_it_runs_again() -> None:
    played = Played(failing(AWAY))
    played.run(3)
    played.said = []
    played.report.update(head_time_ms=1_000)
    assert len(played.stand_still()) == 1
    assert played.said == [(SubscriptionState.STOPPED, "", True)]
    assert played.report.lag_s(2_000) is None, "nobody looks at what is in front"
    assert played.run(2) == [0.5, 1]
