"""Schedules on a real database, with a clock that the test sets, and what came of them."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from psycopg import Connection

from packhorse.jobs.consumers import HandledTopics
from packhorse.jobs.scheduling.definition import FireTime, JobAction, Schedule, ScheduleDefinition
from packhorse.jobs.scheduling.scheduler import Scheduler
from packhorse.jobs.scheduling.store import (
    create_schedule,
    get_schedule,
    list_fire_times,
    list_schedules,
)
from packhorse.jobs.scheduling.timing import Every, When
from tests.harness.borrowing import borrowed
from tests.harness.jobs.stored import bookkeeper

HOURLY = Every(timedelta(hours=1))


def definition(name: str = "test", when: When = HOURLY, **given: Any) -> ScheduleDefinition:
    """Return a schedule that adds a job of the topic `test/job`."""
    fields: dict[str, Any] = {"action": JobAction("test/job", {"given": 1}), **given}
    return ScheduleDefinition(name, when, **fields)


class Schedules:
    """A database with schedules; `moment` is what its clock says to schedulers."""

    def __init__(self, url: str) -> None:
        self.url = url
        with self.transaction() as connection:
            [(now,)] = connection.execute("SELECT clock_timestamp()").fetchall()
        self.moment: datetime = now

    def transaction(self) -> AbstractContextManager[Connection]:
        """Give a transaction as the bookkeeper."""
        return bookkeeper(self.url)

    def create(self, name: str = "test", when: When = HOURLY, **given: Any) -> Schedule:
        """Make a schedule."""
        with self.transaction() as connection:
            return create_schedule(connection, definition(name, when, **given), origin="tests")

    def stored(self, name: str = "test") -> Schedule:
        """Return it as it is now."""
        with self.transaction() as connection:
            return get_schedule(connection, name)

    def names(self) -> list[str]:
        """Return the names of all schedules."""
        with self.transaction() as connection:
            return [one.name for one in list_schedules(connection)]

    def next_fire_time(self, name: str = "test") -> datetime:
        """Return its next moment, which there is."""
        following = self.stored(name).next_fire_time
        assert following is not None
        return following

    def scheduler(
        self,
        instance: str = "one",
        *,
        members: Mapping[str, HandledTopics] | None = None,
        leader: Any = None,
    ) -> Scheduler:
        """Return a scheduler by this clock; call its `fire_due`."""
        return Scheduler(
            lambda: borrowed(self.url),
            instance,
            leader=leader,
            members=lambda: members,
            now=lambda _: self.moment,
        )

    def fire_at(self, moment: datetime, instance: str = "one", **given: Any) -> float:
        """Set the clock and let one instance fire what is due; return its pause."""
        self.moment = moment
        return self.scheduler(instance, **given).fire_due()

    def fire_times(self, name: str = "test") -> list[FireTime]:
        """Return what came of its moments, the oldest first."""
        with self.transaction() as connection:
            return list_fire_times(connection, name, limit=1000)[::-1]

    def reported(self, name: str = "test") -> list[tuple[datetime, str, int]]:
        """Return moment, outcome and how many were missed."""
        return [(one.fire_time, one.outcome.value, one.missed) for one in self.fire_times(name)]

    def jobs(self) -> list[tuple[Any, ...]]:
        """Return schedule, only_on and priority of the jobs that were added, in their order."""
        with self.transaction() as connection:
            return connection.execute(
                "SELECT schedule, only_on, priority FROM jobs.job ORDER BY number"
            ).fetchall()

    def finish_jobs(self) -> None:
        """Let no job be unfinished."""
        with self.transaction() as connection:
            connection.execute("DELETE FROM jobs.job")
