"""The jobs service over a real database and a scripted topology, on a real socket."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.channels import EVENTS
from packhorse.jobs.jobs import Jobs
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import Service
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.runtime.listen import Listener
from packhorse.runtime.principal import Principal
from packhorse.topology.discovery import Discovery
from packhorse.topology.properties import CONSUMERS, FixedProperties
from packhorse_services.jobs.app import jobs_service
from packhorse_services.jobs.http.event_feed import JobEventHub
from packhorse_services.jobs.http.parts import JobsServices
from tests.harness.borrowing import pooled
from tests.harness.topology.scripted import Callers, ScriptedMembership, ScriptedRemotes
from tests.harness.topology.served import Served
from tests.harness.waiting import eventually

OPERATOR = Principal("operator", frozenset({"queues:read", "jobs:operate"}))

Row = Mapping[str, Any]


@dataclass
class JobsSite:
    """The service, and the database that it shows."""

    url: str
    database_url: str
    jobs: Jobs
    callers: Callers
    service: Service
    membership: ScriptedMembership

    def finished(self, number: int, state: str = "SUCCEEDED", **columns: Any) -> int:
        """Put a job into the history as it is; return its number."""
        self._insert("finished", {"number": number, "state": state, **_FINISHED, **columns})
        return number

    def active(self, number: int, **columns: Any) -> int:
        """Put a job there that an instance works on; return its number."""
        row = {"number": number, "state": "ACTIVE", "turn": number, **_STARTED, **columns}
        self._insert("job", row)
        return number

    def count(self, state: str) -> int:
        """Return how many jobs are in a state."""
        query = """SELECT count(*) FROM
            (SELECT state FROM jobs.job UNION ALL SELECT state FROM jobs.finished) AS jobs
            WHERE state = %s"""
        with psycopg.connect(self.database_url) as connection:
            [(count,)] = connection.execute(query, (state,)).fetchall()
        return int(count)

    @contextmanager
    def bookkeeper(self) -> Iterator[psycopg.Connection]:
        """Give a transaction as the bookkeeper."""
        with psycopg.connect(self.database_url) as connection:
            act_as(connection, BOOKKEEPER)
            yield connection

    def _insert(self, table: str, row: Row) -> None:
        row = {**_ROW, **row}
        values = [Jsonb(value) if name in _JSON else value for name, value in row.items()]
        names, places = ", ".join(row), ", ".join(["%s"] * len(row))
        with psycopg.connect(self.database_url) as connection:
            connection.execute(
                "INSERT INTO jobs.topic (topic, queue) VALUES (%s, 'main') ON CONFLICT DO NOTHING",
                (row["topic"],),
            )
            connection.execute(f"INSERT INTO jobs.{table} ({names}) VALUES ({places})", values)


_JSON = ("properties", "progress", "past_attempts", "extra")
_AT = "2026-01-01T12:00:00Z"
_ROW: Row = {"topic": "images/thumbnail", "application": "web", "created_at": _AT, "ready_at": _AT}
_STARTED: Row = {"instance": "worker-1", "attempts": 1, "epoch": 1, "started_at": _AT}
_FINISHED: Row = {**_STARTED, "queue": "main", "max_retries": 10, "finished_at": _AT}


@contextmanager
def jobs_site(database_url: str) -> Iterator[JobsSite]:
    """Serve it to the callers `viewer`, `operator` and `admin`, whose names are their tokens."""
    callers, membership = Callers(), _membership()
    callers.known["operator"] = OPERATOR
    with pooled(database_url, "test") as pool:
        jobs = Jobs(pool.connection, "test")
        discovery = Discovery(
            membership,
            providers=[FixedProperties({CONSUMERS: "images/**"})],
            remotes=ScriptedRemotes(),
            min_event_delay_s=0.05,
        )
        hub, hints = JobEventHub(pool.connection, max_streams=2), Listener(database_url)
        hints.on(EVENTS, hub.hear)
        parts = JobsServices(
            pool=pool,
            jobs=jobs,
            hub=hub,
            discovery=discovery,
        )
        service = jobs_service(parts, Authenticator(callers), components=[discovery, hints, hub])
        site = JobsSite("", database_url, jobs, callers, service, membership)
        with Lifecycle(service.components):
            served = Served(site)  # type: ignore[arg-type]  # has a service as well
            site.url = served.url
            try:
                eventually(discovery.is_current, what="a view that holds")
                yield site
            finally:
                served.end()


def _membership() -> ScriptedMembership:
    return ScriptedMembership("worker-1")
