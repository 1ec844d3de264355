"""Jobs as rows that a test writes itself, to say when they ended and how."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.jobs import Jobs
from tests.harness.borrowing import borrowed


@contextmanager
def bookkeeper(url: str) -> Iterator[psycopg.Connection]:
    """A transaction as the bookkeeper."""
    with borrowed(url) as connection:
        act_as(connection, BOOKKEEPER)
        yield connection


def end_leases(url: str) -> None:
    """Let the leases of all workers be over, as they are 30 s after these were killed."""
    with bookkeeper(url) as connection:
        connection.execute("UPDATE jobs.worker SET lease_until = '-infinity'")


def jobs_of(url: str, application: str = "tests") -> Jobs:
    """The facade; a call has a connection for itself."""
    return Jobs(lambda: borrowed(url), application)


def store_finished(url: str, finished_at: datetime, state: str = "SUCCEEDED", **given: Any) -> int:
    """Write a job into history; return its number."""
    with bookkeeper(url) as connection:
        return insert_finished(connection, finished_at, state, **given)


def insert_finished(
    connection: psycopg.Connection, finished_at: datetime, state: str = "SUCCEEDED", **given: Any
) -> int:
    """Write a job into history as the bookkeeper; return its number."""
    row = {"topic": "a/b", "id": None, "properties": {}, "created_at": finished_at, **given}
    row["properties"] = Jsonb(row["properties"])
    connection.execute(
        "INSERT INTO jobs.topic VALUES (%s, 'main') ON CONFLICT DO NOTHING", (row["topic"],)
    )
    [(number,)] = connection.execute(
        """
        INSERT INTO jobs.finished (number, topic, id, properties, application, created_at,
            ready_at, queue, max_retries, state, finished_at)
        VALUES (nextval('jobs.number'), %(topic)s, %(id)s, %(properties)s, 'tests',
            %(created_at)s, %(created_at)s, 'main', 10, %(state)s, %(finished_at)s)
        RETURNING number
        """,
        {**row, "state": state, "finished_at": finished_at},
    ).fetchall()
    return int(number)


def store_many_finished(url: str, count: int, topics: int = 1) -> None:
    """Write many jobs into history, one a second, the last one now; topics `bulk/0`, …"""
    with bookkeeper(url) as connection:
        connection.execute(
            """
            INSERT INTO jobs.topic SELECT 'bulk/' || n, 'main' FROM generate_series(0, %s - 1) n
            ON CONFLICT DO NOTHING
            """,
            (topics,),
        )
        connection.execute(
            """
            INSERT INTO jobs.finished (number, topic, properties, application, created_at,
                ready_at, queue, max_retries, state, finished_at)
            SELECT nextval('jobs.number'), 'bulk/' || n %% %s, jsonb_build_object('n', n),
                'tests', c.now, c.now, 'main', 10, 'SUCCEEDED', c.now - make_interval(secs => n)
            FROM generate_series(0, %s - 1) n, (SELECT clock_timestamp() AS now) c
            """,
            (topics, count),
        )
