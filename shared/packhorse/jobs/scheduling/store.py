"""Schedules as they are stored: declared by programs, made, changed and looked at by people.

Every function is called in a transaction as the bookkeeper, and commits with it. Who plans is
signalled by a hint.
"""

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson
from psycopg import Connection

from packhorse.jobs.channels import SCHEDULES
from packhorse.jobs.job import JobState
from packhorse.jobs.scheduling.definition import (
    FireTime,
    FireTimeOutcome,
    Schedule,
    ScheduleDefinition,
    require_schedule,
)
from packhorse.jobs.scheduling.errors import (
    InvalidSchedule,
    ScheduleChanged,
    ScheduleExists,
    UnknownSchedule,
)
from packhorse.jobs.scheduling.planning import first_fire_time
from packhorse.jobs.scheduling.rows import COLUMNS, schedule_of, values_of
from packhorse.jobs.scheduling.timing import At
from packhorse.jobs.store.finishing import end_waiting
from packhorse.jobs.store.rows import job_cursor
from packhorse.runtime.strict_json import same_json

DECLARED = "@declared"
"""The origin of schedules that programs of the product declare."""

_WAITING = """
SELECT number FROM jobs.job WHERE schedule = %s AND state = 'QUEUED' ORDER BY number
"""


def database_time(connection: Connection) -> datetime:
    """Return what time it is, for whatever is decided (R28)."""
    [(now,)] = connection.execute("SELECT clock_timestamp()").fetchall()
    moment: datetime = now
    return moment


def declare_schedule(connection: Connection, definition: ScheduleDefinition) -> Schedule:
    """Make a schedule of the product's own where it is absent, and return it as it is then.

    One that is there follows the definition unless somebody has changed it; whether it is
    suspended stays as it is. One that was removed comes back with the next declaration.
    """
    require_schedule(definition)
    inserted = _insert(connection, definition, DECLARED)
    if inserted is not None:
        return inserted
    stored = lock_schedule(connection, definition.name, None)
    wanted = replace(definition, suspended=stored.definition.suspended)
    if stored.changed or stored.origin != DECLARED or _same(stored.definition, wanted):
        return stored
    return _write(connection, stored, wanted, changed=False)


def create_schedule(
    connection: Connection, definition: ScheduleDefinition, *, origin: str
) -> Schedule:
    """Make a schedule and return it; `origin` says who does.

    Raises `ScheduleExists`, and `InvalidSchedule`, `InvalidName` or `InvalidProperties`.
    """
    require_schedule(definition)
    _require_future(connection, definition)
    stored = _insert(connection, definition, origin)
    if stored is None:
        raise ScheduleExists(f"there is a schedule {definition.name} already")
    return stored


def replace_schedule(
    connection: Connection, definition: ScheduleDefinition, *, version: int | None = None
) -> Schedule:
    """Change a schedule to the definition of its name, and return it; it is planned anew.

    Raises `UnknownSchedule`, `ScheduleChanged` when it is of another version, and as
    `create_schedule`.
    """
    require_schedule(definition)
    stored = lock_schedule(connection, definition.name, version)
    if definition.when != stored.definition.when:
        _require_future(connection, definition)
    return _write(connection, stored, definition, changed=True)


def suspend_schedule(
    connection: Connection, name: str, *, suspended: bool = True, version: int | None = None
) -> Schedule:
    """Suspend or resume a schedule, for all instances and until it is undone; return it.

    What comes while it is suspended is not missed, but for a single moment, which is dealt with
    as missed once it is resumed. Raises `UnknownSchedule` or `ScheduleChanged`.
    """
    stored = lock_schedule(connection, name, version)
    if stored.definition.suspended == suspended:
        return stored
    wanted = replace(stored.definition, suspended=suspended)
    return _write(connection, stored, wanted, changed=stored.changed)


def remove_schedule(connection: Connection, name: str, *, version: int | None = None) -> None:
    """Remove a schedule, and drop its jobs that wait; those that have begun go on.

    Raises `UnknownSchedule` or `ScheduleChanged`. One that a program declares comes back when such
    a program starts; suspend it instead.
    """
    lock_schedule(connection, name, version)
    connection.execute("DELETE FROM jobs.schedule WHERE name = %s", (name,))
    waiting = connection.execute(_WAITING, (name,)).fetchall()
    numbers = [number for (number,) in waiting]
    end_waiting(connection, numbers, JobState.DROPPED, "its schedule was removed")
    _hint(connection)


def get_schedule(connection: Connection, name: str) -> Schedule:
    """Return a schedule. Raises `UnknownSchedule`."""
    return _one(connection, name)


def list_schedules(connection: Connection, *, after: str = "", limit: int = 100) -> list[Schedule]:
    """Return a page of schedules, by name, from behind the name `after`."""
    return _select(connection, "WHERE name > %s ORDER BY name LIMIT %s", (after, limit))


def list_fire_times(
    connection: Connection, name: str, *, before: datetime | None = None, limit: int = 100
) -> list[FireTime]:
    """Return a page of a schedule's fire times, the newest first."""
    rows = connection.execute(
        """
        SELECT tick, outcome, decided_at, instance, jobs, missed, reason FROM jobs.tick
        WHERE schedule = %s AND tick < coalesce(%s::timestamptz, 'infinity')
        ORDER BY tick DESC LIMIT %s
        """,
        (name, before, limit),
    ).fetchall()
    return [
        FireTime(
            fire_time, FireTimeOutcome(outcome), decided_at, instance, tuple(jobs), missed, reason
        )
        for fire_time, outcome, decided_at, instance, jobs, missed, reason in rows
    ]


def _require_future(connection: Connection, definition: ScheduleDefinition) -> None:
    when = definition.when
    if isinstance(when, At) and when.moment <= database_time(connection):
        raise InvalidSchedule(f"the moment {when.moment.isoformat()} has passed")


def _insert(connection: Connection, definition: ScheduleDefinition, origin: str) -> Schedule | None:
    """Return None when there is one of the name."""
    now = database_time(connection)
    values = values_of(definition) | {
        "origin": origin,
        "next_tick": first_fire_time(definition, now),
        "times_left": definition.times,
        "planned_at": now,
    }
    names = ", ".join(values)
    places = ", ".join(f"%({name})s" for name in values)
    rows = (
        job_cursor(connection)
        .execute(
            f"INSERT INTO jobs.schedule ({names}) VALUES ({places}) "  # noqa: S608
            f"ON CONFLICT (name) DO NOTHING RETURNING {COLUMNS}",
            values,
        )
        .fetchall()
    )
    _hint(connection)
    return schedule_of(rows[0]) if rows else None


def _write(
    connection: Connection, stored: Schedule, definition: ScheduleDefinition, *, changed: bool
) -> Schedule:
    now = database_time(connection)
    values = values_of(definition) | {
        "changed": changed,
        "next_tick": _next_fire_time(stored, definition, now),
        "times_left": _times_left(stored, definition),
        "planned_at": now,
    }
    settings = ", ".join(f"{name} = %({name})s" for name in values)
    [row] = (
        job_cursor(connection)
        .execute(
            f"UPDATE jobs.schedule SET {settings}, version = version + 1, "  # noqa: S608
            f"updated_at = clock_timestamp() WHERE name = %(name)s RETURNING {COLUMNS}",
            values,
        )
        .fetchall()
    )
    _hint(connection)
    return schedule_of(row)


def _next_fire_time(
    stored: Schedule, definition: ScheduleDefinition, now: datetime
) -> datetime | None:
    """Plan anew only where the change is about time, or it was suspended."""
    if _times_left(stored, definition) == 0:
        return None
    before = stored.definition
    same = all(
        getattr(definition, name) == getattr(before, name)
        for name in ("when", "not_before", "times")
    )
    resumed = before.suspended and not definition.suspended
    goes_on = not resumed or stored.next_fire_time is None or isinstance(definition.when, At)
    return stored.next_fire_time if same and goes_on else first_fire_time(definition, now)


def _times_left(stored: Schedule, definition: ScheduleDefinition) -> int | None:
    unchanged = definition.times == stored.definition.times
    return stored.times_left if unchanged else definition.times


def lock_schedule(connection: Connection, name: str, version: int | None) -> Schedule:
    """Return a schedule that nobody changes until the end. Raises as `suspend_schedule`."""
    found = _one(connection, name, "FOR UPDATE")
    if version is not None and found.version != version:
        raise ScheduleChanged(f"the schedule {name} is of version {found.version}, not {version}")
    return found


def _one(connection: Connection, name: str, lock: str = "") -> Schedule:
    found = _select(connection, f"WHERE name = %s {lock}", (name,))
    if not found:
        raise UnknownSchedule(f"there is no schedule {name[:80]!r}; GET /schedules lists them")
    return found[0]


def _select(connection: Connection, rest: str, values: tuple[Any, ...]) -> list[Schedule]:
    cursor = job_cursor(connection)
    rows = cursor.execute(f"SELECT {COLUMNS} FROM jobs.schedule {rest}", values)  # noqa: S608
    return [schedule_of(row) for row in rows.fetchall()]


def _same(stored: ScheduleDefinition, wanted: ScheduleDefinition) -> bool:
    """Compare, properties as the database does."""
    properties = stored.action.properties
    return stored == replace(
        wanted, action=replace(wanted.action, properties=properties)
    ) and same_json(json.dumps(properties), orjson.dumps(wanted.action.properties))


def _hint(connection: Connection) -> None:
    connection.execute("SELECT pg_notify(%s, '')", (SCHEDULES,))
