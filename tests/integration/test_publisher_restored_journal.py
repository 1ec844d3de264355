"""R24, R31: the journal comes from a backup, or is made anew: nothing is done that nobody has."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from packhorse.clock import SystemClock
from packhorse.messaging.api import Journal as AnyJournal
from packhorse.messaging.api import Outgoing, TopicSpec
from packhorse.messaging.memory import shared_log
from packhorse.messaging.topics import standard_topics
from packhorse.wire.messages import DiscoveryMessage, SubscriberState, SubscriptionState
from packhorse.wire.package_codec import PACKAGE_ID_HEADER
from packhorse_services.publisher.queues.cache.position_check import PositionCheck
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from tests.harness.journals import KafkaBackend, SqlBackend, fresh_name
from tests.harness.kafka.broker import RunningKafka
from tests.harness.postgres import Databases
from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import AGENT, page
from tests.harness.waiting import eventually

MISMATCH = "JOURNAL_MISMATCH"


def nothing(*_: Any) -> None:
    """Do nothing."""


@dataclass
class Journal:
    """A journal that is brought back to an earlier state, or whose topic is made anew."""

    url: str
    remove_topic: Callable[[str], None]
    back_up: Callable[[], None] = nothing
    restore: Callable[[], None] = nothing


def in_memory(folder: Path) -> Journal:
    log = shared_log(str(folder))
    kept: dict[str, list[int]] = {}

    def back_up() -> None:
        for name, topic in log.topics.items():
            kept[name] = [len(one.records) for one in topic.partitions]

    def restore() -> None:
        with log.changed:
            for name, lengths in kept.items():
                for one, length in zip(log.topics[name].partitions, lengths, strict=True):
                    del one.records[length:]

    return Journal("", log.remove_topic, back_up, restore)


def in_postgres(databases: Databases) -> Journal:
    url = databases.new("journal")
    name = url.rpartition("/")[2]

    def execute(*statements: str) -> None:
        with psycopg.connect(databases.server.url(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def back_up() -> None:
        execute(f'CREATE DATABASE "{name}_backup" TEMPLATE "{name}"')

    def restore() -> None:
        execute(
            f'DROP DATABASE "{name}" WITH (FORCE)',
            f'CREATE DATABASE "{name}" TEMPLATE "{name}_backup"',
        )

    return Journal(url, SqlBackend(url).remove_topic, back_up, restore)


@pytest.fixture
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    if request.param == "sql":
        return in_postgres(request.getfixturevalue("databases"))
    return in_memory(tmp_path)


@dataclass
class Site:
    """One author on such a journal, and publishers that come and go on it."""

    database_url: str
    folder: Path
    journal: Journal

    def run(self, scenario: Callable[[PublisherService], Any]) -> None:
        service = PublisherService(self.database_url, self.folder, journal_url=self.journal.url)
        service.author.write(*(page(f"/p{number}") for number in range(9)))
        try:
            service.run(scenario)
        finally:
            if self.journal.url:
                service.author.journal.close()

    def create_anew(self, s: PublisherService) -> None:
        before = s.journal.identity(s.topics.package)
        self.journal.remove_topic(s.topics.package)

        def created() -> bool:
            s.journal.create_topics(standard_topics(s.topics))
            return s.journal.identity(s.topics.package) != before

        eventually(created)


@pytest.fixture
def site(database_url: str, tmp_path: Path, journal: Journal) -> Site:
    return Site(database_url, tmp_path, journal)


async def accepted(s: PublisherService, path: str) -> dict[str, Any]:
    """Distribute a path; the journal may just be coming back."""
    found: dict[str, Any] = {}

    async def taken() -> bool:
        answer = await s.distribute(path, headers={"Idempotency-Key": path})
        found.update(answer.json())
        return answer.status_code == 202 and found["offset"] is not None

    await s.until(taken)
    return found


async def imported(s: PublisherService, ids: Sequence[str], first: int = 0) -> SubscriberState:
    """Let sub1 import everything, and return its subscription."""
    offset = first + len(ids) - 1
    known: dict[str, Any] = {
        "journal_id": s.journal.identity(s.topics.package),
        "package_id": ids[-1],
    }
    await s.announce("sub1", offset, **known)
    assert (await s.get(f"/distributions/{ids[-1]}"))["state"] == "DISTRIBUTED"
    return SubscriberState(AGENT, offset, settled_offset=offset, **known)


async def read(s: PublisherService, path: str) -> Any:
    """Get a path; a reading that began before the journal was restored is answered with 503."""
    async with asyncio.timeout(120):
        while (answer := await s.client.get(path)).status_code == 503:
            await asyncio.sleep(0.02)
    return answer.raise_for_status().json()


async def check_queued(s: PublisherService, packages: Sequence[Any], announced: Any = None) -> None:
    """Check that no answer says that anybody has one of these; announce a state until heard."""
    wanted = {package["id"] for package in packages}

    async def is_reported() -> bool:
        if announced is not None:  # again, as subscribers do: a follower may miss the first
            s.report(DiscoveryMessage("sub1", (announced,)))
            if (await s.client.get("/queues/sub1")).status_code == 404:
                return False  # it has not been heard of yet
        queue = await read(s, "/queues/sub1")
        assert queue["length"] in (None, len(queue["entries"]))
        return queue["state"] == MISMATCH and wanted <= {
            one["package_id"] for one in queue["entries"]
        }

    for package in packages:
        assert package["state"] == "QUEUED"
        found = await read(s, f"/distributions/{package['id']}")
        assert found["state"] == "QUEUED"
        assert {one["state"] for one in found["subscribers"]} <= {"QUEUED"}
    await s.until(is_reported)
    for package in packages:
        found = await read(s, f"/distributions/{package['id']}?wait=0")
        [part] = found["subscribers"]
        assert (found["state"], part["state"]) == ("QUEUED", "QUEUED")
        assert part["reason"].startswith(MISMATCH)
    listed = (await read(s, "/distributions"))["distributions"]
    assert {one["state"] for one in listed if one["id"] in wanted} == {"QUEUED"}


async def check_on(s: PublisherService, subscription: SubscriberState) -> None:
    """Go on until the log is longer than the subscriber's offset, and let it notice."""
    packages = [await accepted(s, f"/p{number}") for number in range(5, 9)]
    assert packages[-1]["offset"] > subscription.offset
    await check_queued(s, packages, subscription)  # it has not noticed
    noticed = {
        "state": SubscriptionState.JOURNAL_MISMATCH,
        "last_error": "another package is there",
    }
    await s.announce("sub1", subscription.offset, shown=-1, settled_offset=-1, **noticed)
    await check_queued(s, packages)


@pytest.mark.parametrize("journal", ["memory", "sql"], indirect=True)
def test_r31_a_journal_from_a_backup_proves_nothing_of_what_is_published_since(site: Site) -> None:
    ids: list[str] = []

    async def before(s: PublisherService) -> None:
        ids.extend([(await accepted(s, f"/p{number}"))["id"] for number in range(2)])

    async def scenario(s: PublisherService) -> None:
        ids.extend([(await accepted(s, f"/p{number}"))["id"] for number in range(2, 4)])
        subscription = await imported(s, ids)
        site.journal.restore()
        packages = [await accepted(s, "/p4")]
        assert packages[0]["offset"] == 2, "an offset that was used before"
        await check_queued(s, packages, subscription)
        await check_on(s, subscription)

    site.run(before)
    site.journal.back_up()
    site.run(scenario)


@pytest.mark.parametrize("journal", ["memory", "sql"], indirect=True)
def test_r31_a_topic_made_anew_proves_nothing(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = [(await accepted(s, f"/p{number}"))["id"] for number in range(3)]
        subscription = await imported(s, ids)
        site.create_anew(s)
        packages = [await accepted(s, "/p4")]
        assert packages[0]["offset"] == 0
        await check_queued(s, packages)
        await check_on(s, subscription)

    site.run(scenario)


@pytest.mark.parametrize("journal", ["memory"], indirect=True)
def test_r31_a_subscription_in_a_gap_proves_nothing(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = [(await accepted(s, f"/p{number}"))["id"] for number in range(2)]
        await imported(s, ids)
        gap: dict[str, Any] = {
            "state": SubscriptionState.GAP,
            "last_error": "begins at 9",
            "started_offset": 1,
        }
        s.report(DiscoveryMessage("sub1", (SubscriberState(AGENT, 1, settled_offset=1, **gap),)))

        async def is_reported() -> bool:
            return bool((await s.get("/queues/sub1"))["state"] == "GAP")

        await s.until(is_reported)
        found = await s.get(f"/distributions/{ids[-1]}")
        [part] = found["subscribers"]
        assert (found["state"], part["state"]) == ("QUEUED", "QUEUED")
        assert part["reason"] == "GAP: begins at 9"

    site.run(scenario)


@pytest.mark.parametrize("journal", ["memory"], indirect=True)
def test_r31_a_position_is_believed_once_the_log_is_known_to_hold_it(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        first = await accepted(s, "/p0")
        second = await accepted(s, "/p1")
        subscription = SubscriberState(AGENT, 1, settled_offset=1, package_id=first["id"])
        await check_queued(s, [{**second, "state": "QUEUED"}], subscription)
        await imported(s, [first["id"], second["id"]])

    site.run(scenario)


@pytest.mark.kafka
def test_r31_on_kafka_a_position_is_looked_up_in_the_topic_that_there_is(
    kafka: RunningKafka,
) -> None:
    backend, topic = KafkaBackend(kafka.url), fresh_name()
    with closing(backend.open()) as journal:
        journal.create_topics([TopicSpec(topic)])
        append(journal, topic, "a", "b")
        subject = PositionCheck(journal, topic, QueueCache(AGENT), SystemClock())
        subject.distrust()  # nothing is in memory
        subscription = SubscriberState(AGENT, 1, package_id="b", journal_id=journal.identity(topic))
        eventually(lambda: subject.check([subscription]) and subject.verdict(subscription) is True)
        backend.remove_topic(topic)

        def created() -> bool:
            journal.create_topics([TopicSpec(topic)])
            return journal.identity(topic) != subscription.journal_id

        eventually(created)
        append(journal, topic, "c", "d")
        subject.distrust()
        eventually(lambda: subject.check([subscription]) and subject.verdict(subscription) is False)


def append(journal: AnyJournal, topic: str, *package_ids: str) -> None:
    for package_id in package_ids:
        record = Outgoing(b"", {PACKAGE_ID_HEADER: package_id.encode()})
        journal.append(topic, record).result(120)
