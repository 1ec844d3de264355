"""What publishers do every so often is done by one of them, by schedules that a user sees."""

import itertools
import threading
from collections import Counter as Counts
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from packhorse.blobs.open import open_blobs
from packhorse.clock import SystemClock
from packhorse.db.pool import Lender
from packhorse.jobs.host import JobsHost
from packhorse.messaging.api import Journal, Outgoing
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.topology.configuration import TopologyConfiguration
from packhorse.topology.own_cluster import InstanceProperties, OwnCluster, join
from packhorse.wire.topics import Topics
from packhorse_services.publisher.assembly.maintenance import MaintenanceTask, host_of
from packhorse_services.publisher.assembly.publisher_parts import Backends, PublisherParts
from packhorse_services.publisher.outcomes.event_log import (
    DatabaseSnapshots,
    EventAppender,
    snapshot_events,
)
from packhorse_services.publisher.publish.request_intake import RequestIntake
from packhorse_services.publisher.settings import Settings
from tests.harness.borrowing import pooled
from tests.harness.waiting import eventually

TOPIC, AGENT = Topics().event, "main"


class Counter:
    """Something to be done, that counts how often it was; fails as often as it is asked to."""

    def __init__(self, failures: int = 0) -> None:
        self.done = 0
        self._failures, self._lock = failures, threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            if self._failures:
                self._failures -= 1
                raise RuntimeError("not now")
            self.done += 1


def task(act: Any, agent: str) -> MaintenanceTask:
    return MaintenanceTask("tidy", timedelta(hours=1), "Tidies", act, agent)


def cluster_of(url: str) -> OwnCluster:
    times = TopologyConfiguration(
        topology_interval_s=0.2, topology_timeout_s=60, min_event_delay_s=0
    )
    return join(url, times, InstanceProperties("publisher", leader_tasks=("scheduler",)))


def come_now(url: str) -> int:
    """Let the time of all schedules have come; return how many there are."""
    with psycopg.connect(url) as connection:
        moved = connection.execute("UPDATE jobs.schedule SET next_tick = clock_timestamp()")
        connection.execute("SELECT pg_notify('packhorse_schedules', '')")
    return moved.rowcount


def declared(url: str) -> int:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT FROM jobs.schedule").rowcount


def finished(url: str) -> list[tuple[str, bool]]:
    """Return schedule of the fire times that fired, and whether a job of theirs is left."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT schedule, EXISTS (SELECT FROM jobs.job WHERE number = ANY (jobs)) "
            "FROM jobs.tick WHERE outcome = 'FIRED' ORDER BY schedule, tick"
        ).fetchall()


def test_one_of_several_replicas_does_it_and_each_agent_has_its_own(database_url: str) -> None:
    first, second = Counter(failures=1), Counter()
    with ExitStack() as stack:
        for act, agent in ((first, "one"), (first, "one"), (second, "two")):
            cluster = cluster_of(database_url)
            host = host_of(database_url, cluster, [task(act, agent)], {})
            stack.enter_context(Lifecycle([cluster, host]))
        eventually(lambda: declared(database_url) == 2, what="all schedules are declared")
        assert come_now(database_url) == 2
        eventually(lambda: not any_left(database_url))
        reported = finished(database_url)
    done = Counts(name.removeprefix("packhorse.publisher.") for name, _ in reported)
    assert done == {"one.tidy": first.done, "two.tidy": second.done}


def any_left(url: str) -> bool:
    """Return whether some schedule has not fired, or its job is not done."""
    reported = finished(url)
    return len({name for name, _ in reported}) < 2 or any(left for _, left in reported)


def test_releases_under_way_end_before_the_intake_refuses_them(
    database_url: str, journal: Journal, tmp_path: Path
) -> None:
    """Components stop in the reverse order."""
    settings = Settings(database_url=SecretStr(database_url), agent=AGENT, authentication=False)
    backends = Backends(
        journal,
        open_blobs(str(tmp_path)),
        Authenticator.off(),
        SystemClock(),
        cluster_of(database_url),
    )
    kinds = [type(component) for component in PublisherParts(settings, backends).components]
    assert kinds.index(JobsHost) > kinds.index(RequestIntake)


@pytest.fixture
def journal() -> Iterator[Journal]:
    journal = open_journal("memory://maintenance", client_name="tests")
    journal.create_topics(standard_topics(Topics()))
    with closing(journal):
        yield journal


@pytest.fixture
def pool(database_url: str) -> Iterator[Lender]:
    with pooled(database_url, "maintenance-test") as pool:
        yield pool


def test_a_snapshot_by_another_replica_has_what_the_log_has(journal: Journal, pool: Lender) -> None:
    store = DatabaseSnapshots(pool)
    epochs = itertools.count(1)
    log = EventAppender(journal, TOPIC, AGENT, store, lambda above: above + next(epochs))
    events = [(offset, Outgoing(b"x", key=AGENT)) for offset in range(10)]
    log.append("log-1", events[:6])
    snapshot_events(journal, TOPIC, AGENT, store)
    kept = store.load(f"{TOPIC}/{AGENT}")
    assert kept is not None
    [producer] = kept.state.producers.values()
    assert producer.sequence == 5
    log.append("log-1", events)
    later = EventAppender(journal, TOPIC, AGENT, store, lambda above: above + next(epochs))
    later.append("log-1", events)
    partition = journal.partition_of(TOPIC, AGENT)
    bounds = journal.bounds(TOPIC, partition)
    assert bounds.next - bounds.oldest == 10, "each event is there once"
