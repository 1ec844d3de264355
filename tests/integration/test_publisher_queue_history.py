"""How queues were: a sample a minute, whichever replica takes it, kept for a day."""

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any

import psycopg
import pytest

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.pool import SharedPool
from packhorse.db.roles import act_as
from packhorse.runtime.periodic import Periodic
from packhorse_services.publisher.queues.history import sample_rows
from packhorse_services.publisher.queues.history.sample_rows import QueueSample
from packhorse_services.publisher.queues.history.sampler import QueueSampler
from tests.harness.publisher_service import PublisherService, as_


@pytest.fixture
def pool(database_url: str) -> Iterator[SharedPool]:
    shared = SharedPool(database_url, "tests")
    shared.start()
    yield shared
    shared.stop(120)


async def begin_of_minute() -> bool:
    return time.time() % 60 < 50


def earlier(database_url: str, minutes: int) -> None:
    """Let all samples be older by so many minutes."""
    with closing(psycopg.connect(database_url, autocommit=True)) as connection:
        connection.execute(
            "UPDATE bookkeeping.queue_sample"
            " SET sampled_at = sampled_at - make_interval(mins => %s)",
            (minutes,),
        )


def test_a_sample_a_minute_says_length_lag_and_rate(
    service: PublisherService, pool: SharedPool, database_url: str
) -> None:
    async def scenario(s: PublisherService) -> None:
        for component in s.parts.components:
            if isinstance(component, Periodic):
                component.stop(120)
        for number in range(5):
            await s.accepted(f"/p{number}")
        await s.announce("sub1", 0)
        await s.announce("sub2", 4)
        await s.until(lambda: waits(s, 4))
        with closing(psycopg.connect(database_url, autocommit=True)) as connection:
            connection.execute("DELETE FROM bookkeeping.queue_sample")
        sampler = QueueSampler(pool.share(1), s.parts.app.state.publisher.queues)
        sampler.sample()
        assert (await s.get("/queue-history"))["queues"] == [], "a first look"
        await s.until(begin_of_minute)
        sampler.sample()
        sampler.sample()  # as another replica does in the same minute
        earlier(database_url, 3)
        await s.announce("sub1", 2)
        sampler.sample()
        found = await s.get("/queue-history")
        assert (found["agent"], found["step_seconds"]) == ("main", 120)
        one, two = found["queues"]
        assert (one["subscriber"], two["subscriber"]) == ("sub1", "sub2")
        assert min(known(one["lag_seconds"])) >= 0
        assert len(known(one["lag_seconds"])) == 2
        assert known(two["lag_seconds"]) == [0, 0]
        assert one["rate"] > 0, "two packages since the first sample"
        found = await s.get("/queues/sub1/history")
        assert len(found["lag_seconds"]) == 60
        assert known(found["length"]) == [4, 2]
        assert known(found["rate"]) == [0, one["rate"]]
        [*_, long] = (await s.get("/queues/sub1/history?hours=24&points=10"))["length"]
        assert long == 4, "the most of the last hours"

    service.run(scenario)


def test_by_when_a_subscriber_had_imported_is_what_the_first_sample_says(
    service: PublisherService, pool: SharedPool, database_url: str
) -> None:
    async def scenario(s: PublisherService) -> None:
        for component in s.parts.components:
            if isinstance(component, Periodic):
                component.stop(120)
        url = f"/distributions/{(await s.accepted('/p0'))['id']}"
        await s.announce("sub1", -1)
        await s.until(lambda: has(s, url, sub1="QUEUED"))
        assert moments(await s.get(url)) == {"sub1": None}
        await s.announce("sub1", 0, settled_offset=0)
        await s.announce("late", 0, settled_offset=0, started_offset=0)
        await s.until(lambda: has(s, url, sub1="IMPORTED", late="SKIPPED"))
        announced = moments(await s.get(url))
        assert announced["sub1"] is not None, "no sample yet: what is announced"
        sampler = QueueSampler(pool.share(1), s.parts.app.state.publisher.queues)
        sampler.sample()
        sampler.sample()
        sampled = moments(await s.get(url))
        assert sampled["late"] is None, "it did not import it"
        times = [datetime.fromisoformat(one["sub1"]) for one in (announced, sampled)]
        assert times[0] < times[1]
        await s.announce("sub1", 0, settled_offset=0)
        assert moments(await s.get(url)) == sampled, "the first one that says so"
        with closing(psycopg.connect(database_url, autocommit=True)) as connection:
            connection.execute(
                "UPDATE bookkeeping.outbox SET accepted_at = now() - '26 h'::interval"
            )
        assert moments(await s.get(url))["sub1"] is None, "longer than samples are kept"

    service.run(scenario)


async def has(s: PublisherService, url: str, **states: str) -> bool:
    subscribers = (await s.get(url))["subscribers"]
    return {one["subscriber"]: one["state"] for one in subscribers} == states


def moments(found: dict[str, Any]) -> dict[str, Any]:
    return {one["subscriber"]: one["imported_by"] for one in found["subscribers"]}


def known(figures: list[float | None]) -> list[float]:
    return [one for one in figures if one is not None]


async def waits(s: PublisherService, length: int) -> bool:
    return bool((await s.get("/queues/sub1"))["length"] == length)


def test_who_may_ask_for_what(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        assert (await s.get("/queue-history"))["queues"] == []
        for path, caller, status in (
            ("/queue-history", "editor", 403),
            ("/queue-history", "viewer", 200),
            ("/queue-history?points=61", "viewer", 422),
            ("/queues/other/history", "editor", 403),
            ("/queues/other/history", "viewer", 404),
            ("/queues/other/history?hours=25", "viewer", 422),
        ):
            answer = await s.client.get(path, headers=as_(caller))
            assert answer.status_code == status, path

    service.run(scenario)


def test_samples_are_forgotten(pool: SharedPool, database_url: str) -> None:
    for minutes in (26 * 60, 0):
        with pool.share(1).connection() as connection:
            act_as(connection, BOOKKEEPER)
            sample_rows.write(connection, "main", [QueueSample("sub1", None, 3, None)])
        earlier(database_url, minutes)
    with pool.share(1).connection() as connection:
        act_as(connection, BOOKKEEPER)
        assert sample_rows.forget(connection, 25 * 3600.0, 10) == 1
        assert sample_rows.forget(connection, 25 * 3600.0, 10) == 0
