"""What was done and what waits: of each queue, of each topic, and of all.

What was done is counted in the transactions that end attempts, so it survives restarts; what waits
is counted when somebody asks. All functions are called in a transaction as the bookkeeper.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime

from psycopg import Connection
from psycopg.rows import dict_row

MOST_COUNTED = 10_000
"""Jobs of one topic that are counted while they wait."""


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Counts of jobs; times are the database's, durations are seconds."""

    queued: int = 0
    """All that wait, the delayed ones too; see `has_more`."""
    delayed: int = 0
    """Those of them that wait for their time."""
    active: int = 0
    has_more: bool = False
    """Whether more may wait than were counted: `queued` and `delayed` are at least that many."""
    succeeded: int = 0
    stopped: int = 0
    given_up: int = 0
    errors: int = 0
    dropped: int = 0
    attempts: int = 0
    """Attempts that ended, however."""
    failed_attempts: int = 0
    waiting_s: float = 0.0
    """Summed over the attempts: from being ready to being begun."""
    processing_s: float = 0.0
    """Summed over the attempts."""
    since: datetime | None = None
    """Since when is counted; None: nothing has ended yet."""
    last_started_at: datetime | None = None
    last_finished_at: datetime | None = None

    @property
    def finished(self) -> int:
        """Jobs that came to an end."""
        return self.succeeded + self.cancelled

    @property
    def cancelled(self) -> int:
        """Jobs that came to another end than SUCCEEDED."""
        return self.stopped + self.given_up + self.errors + self.dropped

    @property
    def average_waiting_s(self) -> float | None:
        """Seconds from being ready to being begun; None before the first."""
        return self.waiting_s / self.attempts if self.attempts else None

    @property
    def average_processing_s(self) -> float | None:
        """Seconds of an attempt; None before the first."""
        return self.processing_s / self.attempts if self.attempts else None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures at one moment; a job counts in its topic's present queue until it has been done."""

    at: datetime
    all: JobFigures
    queues: Mapping[str, JobFigures]
    """By name: every queue that there is, and those that are gone and have done something."""
    topics: Mapping[str, JobFigures]
    """By topic: every topic that jobs were given for, and that is not forgotten."""


Part = tuple[str, str, JobFigures]
"""A queue, a topic, and some of their figures."""


def read_statistics(connection: Connection, most: int = MOST_COUNTED) -> Statistics:
    """Return all figures; best in a REPEATABLE READ transaction, so that they fit together.

    Of each topic `most` jobs that are ready are counted, and of all together as many delayed ones:
    the cost does not grow with what waits.
    """
    [(at,)] = connection.execute("SELECT clock_timestamp()").fetchall()
    names = [name for (name,) in connection.execute("SELECT name FROM jobs.queue ORDER BY name")]
    parts = [*_waiting(connection, most), *_done(connection)]
    queues: dict[str, list[JobFigures]] = {name: [] for name in names}
    topics: dict[str, list[JobFigures]] = defaultdict(list)
    for queue, topic, figures in parts:
        queues.setdefault(queue, []).append(figures)
        if topic:  # what was done for forgotten topics has none
            topics[topic].append(figures)
    return Statistics(
        at,
        _sum(figures for _, _, figures in parts),
        {name: _sum(queues[name]) for name in sorted(queues)},
        {topic: _sum(topics[topic]) for topic in sorted(topics)},
    )


def _waiting(connection: Connection, most: int) -> list[Part]:
    rows = connection.execute(
        """
        SELECT t.queue, t.topic, ready.jobs, coalesce(delayed.jobs, 0), coalesce(active.jobs, 0)
        FROM jobs.topic t
        CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM (
            SELECT FROM jobs.job j
            WHERE j.topic = t.topic AND state = 'QUEUED' AND NOT delayed LIMIT %(limit)s
        ) AS few) AS ready
        LEFT JOIN (
            SELECT topic, count(*) AS jobs FROM (
                SELECT topic FROM jobs.job WHERE state = 'QUEUED' AND delayed LIMIT %(limit)s
            ) AS few GROUP BY topic
        ) AS delayed USING (topic)
        LEFT JOIN (
            SELECT topic, count(*) AS jobs FROM jobs.job WHERE state = 'ACTIVE' GROUP BY topic
        ) AS active USING (topic)
        """,
        {"limit": most},
    ).fetchall()
    more_delayed = sum(delayed for *_, delayed, _ in rows) >= most  # of which topic is not known
    return [
        (queue, topic, JobFigures(ready + delayed, delayed, active, more_delayed or ready >= most))
        for queue, topic, ready, delayed, active in rows
    ]


def _done(connection: Connection) -> list[Part]:
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            """
            SELECT queue, topic, sum(succeeded)::bigint AS succeeded,
                sum(stopped)::bigint AS stopped, sum(given_up)::bigint AS given_up,
                sum(errors)::bigint AS errors, sum(dropped)::bigint AS dropped,
                sum(attempts)::bigint AS attempts,
                sum(failed_attempts)::bigint AS failed_attempts,
                sum(waiting_s) AS waiting_s, sum(processing_s) AS processing_s,
                min(since) AS since, max(last_started_at) AS last_started_at,
                max(last_finished_at) AS last_finished_at
            FROM jobs.statistics GROUP BY queue, topic
            """
        )
        return [(row.pop("queue"), row.pop("topic"), JobFigures(**row)) for row in rows]


def _sum(parts: Iterable[JobFigures]) -> JobFigures:
    found = list(parts)
    counts = {name: sum(getattr(one, name) for one in found) for name in _COUNTS}
    begun = [one.since for one in found if one.since is not None]
    return JobFigures(
        **counts,
        has_more=any(one.has_more for one in found),
        since=min(begun, default=None),
        last_started_at=_last(one.last_started_at for one in found),
        last_finished_at=_last(one.last_finished_at for one in found),
    )


def _last(times: Iterable[datetime | None]) -> datetime | None:
    return max((time for time in times if time is not None), default=None)


_OTHERS = {"has_more", "since", "last_started_at", "last_finished_at"}
_COUNTS = tuple(one.name for one in fields(JobFigures) if one.name not in _OTHERS)
