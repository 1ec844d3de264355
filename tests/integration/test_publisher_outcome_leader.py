"""Outcomes with several replicas: who can't keep them releases the lock for who can (R9, R18)."""

import asyncio
import threading
from pathlib import Path

import pytest
from psycopg import Connection

from packhorse.messaging.api import JournalUnavailable
from packhorse.wire.messages import Status
from packhorse_services.publisher.outcomes.progress import TopicCursor
from tests.harness.publisher_service import PublisherService
from tests.harness.publisher_site import Site, publish, until_failed


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


class BlindRecorder:
    """The recorder of a replica that may not read the status topic."""

    packages = ""

    def record(self, _: Connection) -> TopicCursor:
        raise JournalUnavailable("not authorized to read the topic")

    def close(self) -> None:
        """Nothing is open."""


def test_r18_a_replica_that_cannot_read_statuses_leaves_them_to_another(
    site: Site, database_url: str, tmp_path: Path
) -> None:
    async def second(other: PublisherService) -> None:
        await other.until_ready()
        await until_failed(other, "sub1", 1)

    async def first(s: PublisherService) -> None:
        [package_id] = await publish(s, 1)
        await s.announce("sub1", -1)
        s.outcome_loop._recorder = BlindRecorder()  # type: ignore[assignment]
        s.status("sub1", 0, Status.REMOVED_FAILED, package_id=package_id)
        replica = PublisherService(database_url, tmp_path)
        await asyncio.to_thread(replica.run, second)
        assert (await s.get("/queues/sub1/errors"))["length"] == 1

    site.run(first)


def test_r18_a_replica_that_cannot_publish_events_releases_the_lock_too(
    site: Site, database_url: str, tmp_path: Path
) -> None:
    refused = threading.Semaphore(0)

    class MuteNotifier:
        def publish(self, *_: object) -> bool:
            refused.release()
            raise JournalUnavailable("not authorized to write the topic")

        def forget(self) -> None:
            """Nothing is known."""

    async def second(other: PublisherService) -> None:
        assert await asyncio.to_thread(other.outcome_loop._progress.reached, 1, 30)
        await other.until(lambda: asyncio.sleep(0, other.outcome_loop._progress.here))

    async def first(s: PublisherService) -> None:
        [package_id] = await publish(s, 1)
        s.outcome_loop._event_publisher = MuteNotifier()  # type: ignore[assignment]
        s.status("sub1", 0, Status.IMPORTED, package_id=package_id)
        await s.announce("sub1", 0)
        assert await asyncio.to_thread(refused.acquire, timeout=120)
        await asyncio.to_thread(PublisherService(database_url, tmp_path).run, second)

    site.run(first)
