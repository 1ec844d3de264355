"""Schedules between Python and their flat form: their table's columns, and what HTTP says."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from psycopg.types.json import Jsonb

from packhorse.jobs.scheduling.definition import (
    Action,
    EventAction,
    JobAction,
    Missed,
    RunOn,
    Schedule,
    ScheduleDefinition,
)
from packhorse.jobs.scheduling.timing import At, Cron, Every, When

Row = Mapping[str, Any]

COLUMNS = (
    "name, description, cron, time_zone, period, at, action, topic, properties, priority, run_on, "
    "concurrent, missed, missed_limit, not_before, times, suspended, origin, changed, version, "
    "next_tick AS next_fire_time, last_tick AS last_fire_time, times_left, created_at, "
    "updated_at"
)


STORED = tuple(field.name for field in fields(Schedule) if field.name != "definition")
"""What a schedule has beside its definition."""


def schedule_of(row: Row) -> Schedule:
    """Return the schedule that a row of `COLUMNS` is."""
    return Schedule(definition_of(row), **{name: row[name] for name in STORED})


def definition_of(row: Row) -> ScheduleDefinition:
    """Return the definition whose flat form this is."""
    return ScheduleDefinition(
        name=row["name"],
        when=_when(row),
        action=_action(row),
        description=row["description"],
        run_on=RunOn(row["run_on"]),
        concurrent=row["concurrent"],
        missed=Missed(row["missed"]),
        missed_limit=row["missed_limit"],
        not_before=row["not_before"],
        times=row["times"],
        suspended=row["suspended"],
    )


def values_of(definition: ScheduleDefinition) -> dict[str, Any]:
    """Return the columns that say what somebody wants."""
    return flat(definition) | {"properties": Jsonb(dict(definition.action.properties))}


def flat(definition: ScheduleDefinition) -> dict[str, Any]:
    """Return the flat form of a definition."""
    when, action = definition.when, definition.action
    cron = when if isinstance(when, Cron) else None
    return {
        "name": definition.name,
        "description": definition.description,
        "cron": cron.expression if cron else None,
        "time_zone": cron.time_zone if cron else None,
        "period": when.period if isinstance(when, Every) else None,
        "at": when.moment if isinstance(when, At) else None,
        "action": "JOB" if isinstance(action, JobAction) else "EVENT",
        "topic": action.topic,
        "properties": action.properties,
        "priority": action.priority if isinstance(action, JobAction) else 0,
        "run_on": definition.run_on.value,
        "concurrent": definition.concurrent,
        "missed": definition.missed.value,
        "missed_limit": definition.missed_limit,
        "not_before": definition.not_before,
        "times": definition.times,
        "suspended": definition.suspended,
    }


def _when(row: Row) -> When:
    if row["cron"] is not None:
        return Cron(row["cron"], row["time_zone"])
    if row["period"] is not None:
        return Every(row["period"])
    return At(row["at"])


def _action(row: Row) -> Action:
    if row["action"] == "JOB":
        return JobAction(row["topic"], row["properties"], row["priority"])
    return EventAction(row["topic"], row["properties"])
