"""Fires schedules at their time, on every instance that has one of these; each fire time once."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

import psycopg
from psycopg import Connection

from packhorse.clock import SystemClock
from packhorse.db.transactions import Connect, bookkeeping
from packhorse.errors import Permanent
from packhorse.jobs.consumers import HandledTopics
from packhorse.jobs.scheduling.firing import Decided, Firer, fire, next_due, replan_jumped
from packhorse.jobs.scheduling.store import database_time
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.runtime.metrics import SCHEDULE_FIRE_TIMES, SCHEDULE_LATENESS, report
from packhorse.runtime.outage import Outage
from packhorse.topology.leader import NotLeader, Token
from packhorse.topology.membership import StoreUnavailable

logger = logging.getLogger(__name__)

LEADER_TASK = "scheduler"
"""The leader task of programs with a `Scheduler`; its holder is the leader."""

POLL_S = 10.0
"""How often it looks without a hint."""
_AFTER_TROUBLE_S, _UNABLE_S = 2.0, 60.0
_MOST_AT_ONCE = 1_000
_PAUSE = "5s"
"""How long a transaction may stand still: a paused process keeps a schedule from the others."""


class LeaderTask(Protocol):
    """Whose turn it is to fire what only the leader fires."""

    def take(self) -> Token | None:
        """Return the right to it; None while it is another's. Raises `StoreUnavailable`."""
        ...


class Scheduler(WorkerComponent):
    """A component. Without a leader task and members it fires `SINGLE` schedules alone."""

    def __init__(
        self,
        connect: Connect,
        instance: str,
        *,
        leader: LeaderTask | None = None,
        members: Callable[[], Mapping[str, HandledTopics] | None] = lambda: None,
        now: Callable[[Connection], datetime] = database_time,
    ) -> None:
        """Take `connect` from a pool of two or more; `now` is asked what time it is."""
        self._connect, self._instance = connect, instance
        report("packhorse_schedule_")
        self._leader, self._members = leader, members
        self._clock, self._now = SystemClock(), now
        self._wake = threading.Event()
        self._worker = Worker("scheduler", self._run, wake=self._wake.set)
        self._unable: dict[str, float] = {}
        self._outage = Outage(
            logger, "schedules can't be fired now", "schedules are fired again", self._clock
        )

    def kick(self) -> None:
        """Look soon: a schedule or the topology has changed."""
        self._wake.set()

    def fire_due(self) -> float:
        """Fire all that is due and return in how many seconds to look again.

        Raises `psycopg.Error` or `psycopg_pool.PoolTimeout`; what has fired stays.
        """
        with self._connect() as connection:
            ahead = self._ahead(connection)
            if ahead > 0:
                return ahead
            with _work(connection):
                now = self._now(connection)
                replan_jumped(connection, now)
            self._fire_all(connection, Firer(self._instance, self._members()))
            self._fire_as_leader(connection)
            with _work(connection):
                return self._pause(connection)

    def _ahead(self, connection: Connection) -> float:
        """Return how long there is nothing to do; 0 or less where there may be something now."""
        with connection.pipeline(), _work(connection):
            now = self._now(connection)
            [(following, jumped)] = connection.execute(
                "SELECT min(next_tick) FILTER (WHERE NOT suspended), "
                "coalesce(bool_or(planned_at > %s), false) FROM jobs.schedule",
                (now,),
            ).fetchall()
        return 0.0 if jumped else _ahead_of(following, now)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._wake.clear()
            self._clock.wait(self._wake, self._round())

    def _round(self) -> float:
        try:
            pause = self.fire_due()
        except psycopg.Error as error:
            self._outage.failed(error)
            return _AFTER_TROUBLE_S
        except Exception:
            logger.exception("a round of the scheduler failed")
            return _AFTER_TROUBLE_S
        self._outage.ended()
        return pause

    def _fire_as_leader(self, connection: Connection) -> None:
        if self._leader is None:
            return
        with _work(connection):
            waits = connection.execute(
                "SELECT FROM jobs.schedule WHERE NOT suspended AND next_tick <= %s "
                "AND run_on = 'LEADER' LIMIT 1",
                (self._now(connection),),
            ).fetchone()
        if waits is None:
            return
        try:
            token = self._leader.take()
            if token is not None:
                self._fire_all(connection, Firer(self._instance, token=token))
        except (NotLeader, StoreUnavailable) as error:
            logger.debug("not the leader: %s", error)

    def _fire_all(self, connection: Connection, firer: Firer) -> None:
        for _ in range(_MOST_AT_ONCE):
            if not self._fire_one(connection, firer):
                return

    def _fire_one(self, connection: Connection, firer: Firer) -> bool:
        """Deal with one schedule; false when none is due. One that fails is left for a while."""
        name = ""
        try:
            with _work(connection):
                now = self._now(connection)
                schedule = next_due(connection, firer, now, self._left_out())
                if schedule is None:
                    return False
                name = schedule.name
                decided = fire(connection, schedule, firer, now)
        except NotLeader:
            raise
        except Exception as error:
            if not name or connection.broken:
                raise
            logger.warning("the schedule %s can't fire: %s", name, error, extra={"schedule": name})
            pause = _UNABLE_S if isinstance(error, Permanent) else _AFTER_TROUBLE_S
            self._unable[name] = self._clock.monotonic() + pause
        else:
            _count(decided, now)
        return True

    def _left_out(self) -> list[str]:
        now = self._clock.monotonic()
        self._unable = {name: until for name, until in self._unable.items() if until > now}
        return list(self._unable)

    def _pause(self, connection: Connection) -> float:
        now = self._now(connection)
        [(following,)] = connection.execute(
            "SELECT min(next_tick) FROM jobs.schedule WHERE NOT suspended AND next_tick > %s",
            (now,),
        ).fetchall()
        return _ahead_of(following, now)


def _ahead_of(following: datetime | None, now: datetime) -> float:
    return POLL_S if following is None else min(POLL_S, (following - now).total_seconds())


@contextmanager
def _work(connection: Connection) -> Iterator[None]:
    with bookkeeping(connection):
        connection.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true)", (_PAUSE,)
        )
        yield


def _count(decided: Decided, now: datetime) -> None:
    for outcome in decided.outcomes:
        SCHEDULE_FIRE_TIMES.labels(outcome.value).inc()
    if decided.plan.missed:
        SCHEDULE_FIRE_TIMES.labels("MISSED").inc(decided.plan.missed)
        extra = {"schedule": decided.name, "missed": decided.plan.missed}
        logger.warning(
            "nobody fired the schedule %s within a minute of its time; missed: %d",
            decided.name,
            decided.plan.missed,
            extra=extra,
        )
    for fire_time in decided.plan.fire:
        SCHEDULE_LATENESS.observe(max(0.0, (now - fire_time).total_seconds()))
