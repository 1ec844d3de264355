"""One job done by a consumer without a database, for tests of what it does."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from psycopg import Connection

from packhorse.clock import SystemClock
from packhorse.errors import Permanent
from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.job import Job, JobProgress, JobState
from packhorse.jobs.names import require_properties, require_topic
from packhorse.jobs.store.claims import Claim, Claimed
from packhorse.jobs.store.notes import Notes
from packhorse.jobs.work.attempt import RunningAttempt, work
from packhorse.jobs.work.context import AttemptContext

_NO_DATABASE = (
    "a consumer that is tested has no database; test this one inside `with app.running()`"
)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a consumer did with a job."""

    outcome: Outcome
    message: str
    """What it returned, or the exception that it raised."""
    log: tuple[str, ...]
    progress: JobProgress | None
    extra: Mapping[str, Any]


def tried(consumers: Consumers, topic: str, properties: Mapping[str, Any]) -> Trial:
    """Let a consumer do a job. Raises `InvalidName`, `InvalidProperties`, `Permanent`."""
    consumer = consumers.find(require_topic(topic))
    if consumer is None:
        raise Permanent(f"no consumer of this app does jobs of the topic {topic}")
    running = RunningAttempt(Claimed(Claim(0, "trial", 1), _job(topic, properties), None))
    results: list[Result] = []
    context = AttemptContext(running, _NoStore())
    work(running, consumer, context, lambda _, result: results.append(result), SystemClock())
    notes = running.take_notes()
    return Trial(
        results[0].outcome, results[0].message, tuple(notes.log), notes.progress, notes.extra
    )


def _job(topic: str, properties: Mapping[str, Any]) -> Job:
    now = datetime.now(UTC)
    return Job(
        number=0,
        topic=topic,
        id=None,
        queue="trial",
        priority=0,
        state=JobState.ACTIVE,
        properties=require_properties(properties),
        application="trial",
        created_at=now,
        ready_at=now,
        attempts=1,
        max_retries=0,
        started_at=now,
    )


class _NoStore:
    def connection(self) -> AbstractContextManager[Connection]:
        _refuse()

    def hold(self, _connection: Connection, _running: RunningAttempt) -> None:
        _refuse()

    def succeed(self, _connection: Connection, _running: RunningAttempt, _notes: Notes) -> JobState:
        _refuse()

    def submit_result(self, _running: RunningAttempt, _result: Result) -> None:
        _refuse()


def _refuse() -> NoReturn:
    raise Permanent(_NO_DATABASE)
