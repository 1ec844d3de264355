"""Firing in one transaction: the row of the fire time, the job or event, and the next fire time.

So a fire time fires once a cluster, whatever dies: either all of it is there, or nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from psycopg import Connection

from packhorse.jobs.consumers import HandledTopics
from packhorse.jobs.event_store import NewEvent, record
from packhorse.jobs.scheduling.definition import (
    EventAction,
    FireTime,
    FireTimeOutcome,
    JobAction,
    RunOn,
    Schedule,
)
from packhorse.jobs.scheduling.errors import InstancesUnknown
from packhorse.jobs.scheduling.planning import MOST_COUNTED, FiringPlan, plan, replan
from packhorse.jobs.scheduling.rows import COLUMNS, schedule_of
from packhorse.jobs.scheduling.store import database_time, lock_schedule
from packhorse.jobs.store.adding import add_jobs
from packhorse.jobs.store.given import LEADER, NewJob
from packhorse.jobs.store.rows import job_cursor
from packhorse.topology.leader import Token

_LOCKED = "FOR UPDATE SKIP LOCKED"
_ASKED = "somebody asked for it"
_JUMPED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Firer:
    """What the instance that fires is, and what it knows of its cluster."""

    instance: str
    members: Mapping[str, HandledTopics] | None = None
    """The live instances and what they have consumers for; None while that is not known."""
    token: Token | None = None
    """The right to fire what only the leader does."""

    def scopes(self) -> list[str]:
        """Return which schedules it may fire."""
        if self.token is not None:
            return [RunOn.LEADER.value]
        return [RunOn.SINGLE.value, *([] if self.members is None else [RunOn.ALL.value])]


@dataclass(frozen=True, slots=True)
class Decided:
    """What came of one schedule that was due."""

    name: str
    plan: FiringPlan
    outcomes: Sequence[FireTimeOutcome]


@dataclass(frozen=True, slots=True)
class _Effect:
    outcome: FireTimeOutcome
    jobs: Sequence[int] = ()
    reason: str = ""


def next_due(
    connection: Connection, firer: Firer, now: datetime, without: Collection[str] = ()
) -> Schedule | None:
    """Return the schedule that has been due for longest, locked; None when there is none.

    One that another instance deals with at this moment is left to it.
    """
    rows = (
        job_cursor(connection)
        .execute(
            f"SELECT {COLUMNS} FROM jobs.schedule WHERE NOT suspended AND next_tick <= %s "  # noqa: S608
            "AND run_on = ANY(%s) AND name <> ALL(%s) "
            f"ORDER BY next_tick LIMIT 1 {_LOCKED}",
            (now, firer.scopes(), list(without)),
        )
        .fetchall()
    )
    return schedule_of(rows[0]) if rows else None


def fire(connection: Connection, schedule: Schedule, firer: Firer, now: datetime) -> Decided:
    """Deal with a schedule that `next_due` has returned, in the same transaction.

    Raises `NotLeader`, or what adding the job raises: then nothing may stay.
    """
    if firer.token is not None:
        firer.token.check(connection)
    return _Firing(connection, schedule, firer, now).perform()


def fire_now(
    connection: Connection, name: str, firer: Firer, *, version: int | None = None
) -> FireTime:
    """Fire a schedule because somebody asks; return its outcome, a fire time more than planned.

    Also one that is suspended or has ended. Its plan, and how often it may still fire, stay as
    they are. Where it is not `concurrent` it may be SKIPPED. Whoever asks need not lead: a job of
    the leader waits for that. Called in a transaction as the bookkeeper. Raises
    `UnknownSchedule`, `ScheduleChanged`, or `InstancesUnknown` for one that runs on all.
    """
    schedule = lock_schedule(connection, name, version)
    if schedule.definition.run_on is RunOn.ALL and firer.members is None:
        raise InstancesUnknown("which instances are alive is not known at the moment; try again")
    return _Firing(connection, schedule, firer, database_time(connection)).perform_now()


def replan_jumped(connection: Connection, now: datetime) -> int:
    """Plan anew what was planned in what is the future now: the clock has gone back."""
    rows = (
        job_cursor(connection)
        .execute(
            f"SELECT {COLUMNS} FROM jobs.schedule WHERE planned_at > %s "  # noqa: S608
            f"ORDER BY planned_at LIMIT %s {_LOCKED}",
            (now, _JUMPED_AT_ONCE),
        )
        .fetchall()
    )
    for schedule in map(schedule_of, rows):
        following = schedule.next_fire_time
        if following is not None:
            following = replan(schedule.definition, following, now)
        connection.execute(
            "UPDATE jobs.schedule SET next_tick = %s, planned_at = %s WHERE name = %s",
            (following, now, schedule.name),
        )
    return len(rows)


@dataclass(frozen=True, slots=True)
class _Firing:
    connection: Connection
    schedule: Schedule
    firer: Firer
    now: datetime

    def perform(self) -> Decided:
        due, left = self.schedule.next_fire_time or self.now, self.schedule.times_left
        planned = plan(self.schedule.definition, due, self.now)
        fire_times = planned.fire if left is None else planned.fire[:left]
        outcomes: list[FireTimeOutcome] = []
        for fire_time in fire_times:
            if not self._is_decided(fire_time):
                effect = self._act()
                missed = planned.missed if fire_time == planned.fire[0] else 0
                self._note(fire_time, missed, effect)
                outcomes.append(effect.outcome)
        if planned.last_missed is not None and not self._is_decided(planned.last_missed):
            effect = _Effect(FireTimeOutcome.MISSED, reason="no instance could fire at its time")
            self._note(planned.last_missed, planned.missed - 1, effect)
        self._go_on(planned, outcomes.count(FireTimeOutcome.FIRED))
        return Decided(self.schedule.name, planned, outcomes)

    def perform_now(self) -> FireTime:
        effect = self._act()
        effect = replace(effect, reason=effect.reason or _ASKED)
        self._note(self.now, 0, effect)
        return FireTime(
            self.now,
            effect.outcome,
            self.now,
            self.firer.instance,
            tuple(effect.jobs),
            0,
            effect.reason,
        )

    def _is_decided(self, fire_time: datetime) -> bool:
        """Return whether it was dealt with before the clock went back."""
        found = self.connection.execute(
            "SELECT FROM jobs.tick WHERE schedule = %s AND tick = %s",
            (self.schedule.name, fire_time),
        )
        return found.fetchone() is not None

    def _act(self) -> _Effect:
        action, run_on = self.schedule.definition.action, self.schedule.definition.run_on
        if isinstance(action, EventAction):
            event = NewEvent(action.topic, self.firer.instance, action.properties, echo=True)
            record(self.connection, [event])
            return _Effect(FireTimeOutcome.FIRED)
        if run_on is RunOn.ALL:
            return self._act_everywhere(action)
        if self._unfinished(1):
            return _Effect(
                FireTimeOutcome.SKIPPED, reason="the job of an earlier fire time is not done"
            )
        return self._add(action, [LEADER if run_on is RunOn.LEADER else None])

    def _act_everywhere(self, action: JobAction) -> _Effect:
        members = self.firer.members or {}
        able = [
            instance
            for instance, handled_topics in members.items()
            if handled_topics.covers(action.topic)
        ]
        if not able:
            reason = f"no live instance has a consumer for {action.topic}"
            return _Effect(FireTimeOutcome.SKIPPED, reason=reason)
        busy = self._unfinished()
        free = [instance for instance in able if instance not in busy]
        if not free:
            reason = "the jobs of an earlier fire time are not done"
            return _Effect(FireTimeOutcome.SKIPPED, reason=reason)
        return self._add(action, free)

    def _add(self, action: JobAction, places: Sequence[str | None]) -> _Effect:
        jobs = [
            NewJob(
                action.topic,
                action.properties,
                priority=action.priority,
                only_on=place,
                schedule=self.schedule.name,
            )
            for place in places
        ]
        added = add_jobs(self.connection, self.firer.instance, jobs)
        return _Effect(FireTimeOutcome.FIRED, [one.job.number for one in added])

    def _unfinished(self, most: int | None = None) -> set[str]:
        """Return where jobs of earlier fire times are in the way; "" stands for any instance.

        At most `most` jobs are looked at.
        """
        if self.schedule.definition.concurrent:
            return set()
        rows = self.connection.execute(
            "SELECT only_on FROM jobs.job WHERE schedule = %s LIMIT %s", (self.schedule.name, most)
        ).fetchall()
        return {only_on for (only_on,) in rows}

    def _note(self, fire_time: datetime, missed: int, effect: _Effect) -> None:
        self.connection.execute(
            """
            INSERT INTO jobs.tick
                (schedule, tick, outcome, decided_at, instance, jobs, missed, reason)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
            """,
            (
                self.schedule.name,
                fire_time,
                effect.outcome.value,
                self.now,
                self.firer.instance,
                list(effect.jobs),
                min(missed, MOST_COUNTED),
                effect.reason,
            ),
        )

    def _go_on(self, planned: FiringPlan, fired: int) -> None:
        left = self.schedule.times_left
        left = None if left is None else left - fired
        self.connection.execute(
            "UPDATE jobs.schedule SET next_tick = %s, last_tick = %s, times_left = %s, "
            "planned_at = %s WHERE name = %s",
            (
                None if left == 0 else planned.next_fire_time,
                planned.fire[-1] if planned.fire else planned.last_missed,
                left,
                self.now,
                self.schedule.name,
            ),
        )
