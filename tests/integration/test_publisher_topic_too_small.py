"""A package topic that was made too small: nothing is lost, and the publisher says what to do."""

import json
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.messaging.kafka.clients import BATCH_BYTES
from packhorse.messaging.open import open_journal
from packhorse.wire.topics import MAX_RECORD_BYTES, Topics
from packhorse_services.publisher.outbox.append_lock import AppendLock
from packhorse_services.publisher.outbox.journal_appender import JournalAppender, TopicTooSmall
from packhorse_services.publisher.publish.packer import Packer
from packhorse_services.publisher.publish.publishing import JournalPatience, Publishing
from tests.harness.clock import ManualClock
from tests.harness.kafka.broker import RunningKafka
from tests.harness.postgres import Databases
from tests.harness.publishing import AGENT, Author, page, publish, request
from tests.harness.waiting import eventually

Resize = Callable[[str, int], None]
"""Sets the largest record that a topic takes, as an operator does."""

JOURNALS = ["sql", pytest.param("kafka", marks=pytest.mark.kafka)]
SMALL = 50_000


@pytest.fixture(params=JOURNALS)
def journal_url(request: pytest.FixtureRequest) -> str:
    if request.param == "kafka":
        broker: RunningKafka = request.getfixturevalue("kafka")
        return broker.url
    databases: Databases = request.getfixturevalue("databases")
    return databases.new("journal")


@pytest.fixture
def resize(journal_url: str) -> Resize:
    return (
        _resize_on_kafka(journal_url) if journal_url.startswith("kafka") else _resize(journal_url)
    )


def _resize(url: str) -> Resize:
    def resize(topic: str, size: int) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(
                "UPDATE journal.topic SET max_record_bytes = %s WHERE name = %s", (size, topic)
            )

    return resize


def _resize_on_kafka(url: str) -> Resize:
    def resize(topic: str, size: int) -> None:
        entry = ConfigEntry(
            "max.message.bytes",
            str(size + BATCH_BYTES),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        client = AdminClient({"bootstrap.servers": url.removeprefix("kafka://")})
        (altered,) = client.incremental_alter_configs([resource]).values()
        altered.result(120)

    return resize


@pytest.fixture
def author(database_url: str, journal_url: str, tmp_path: Path) -> Iterator[Author]:
    journal = open_journal(journal_url, client_name="tests")
    topics = Topics.named(f"small-{time.time_ns()}", {})
    author = Author(database_url, journal, open_blobs(str(tmp_path / "blobs")), topics)
    author.write(page("/small"), Node("/large", "page", noise(4 * SMALL)))
    yield author
    author.close()
    journal.close()


def noise(size: int) -> str:
    return json.dumps({"noise": secrets.token_hex(size // 2)})


def test_a_package_that_the_topic_refuses_waits_and_keeps_the_order(
    author: Author, resize: Resize
) -> None:
    clock, topic = ManualClock(), author.topics.package
    resize(topic, SMALL)
    delivery = JournalAppender(author.journal, topic)
    publishing = Publishing(
        AppendLock(author.lock_connection),
        Packer(author.blobs, AGENT, "instance", clock),
        delivery,
        clock=clock,
        patience=JournalPatience(reconcile_s=0, outbox_packages=2),
    )
    [before] = publish(publishing, request("/small"))
    [large] = publish(publishing, request("/large"))
    [behind] = publish(publishing, request("/small"))
    assert before.future.result().offset == 0
    assert [waits.future.result().offset for waits in (large, behind)] == [None, None]

    [refused] = publish(publishing, request("/small"))
    error = refused.future.exception()
    assert isinstance(error, TopicTooSmall)
    for word in (topic, large.package_id, "max.message.bytes"):
        assert word in str(error)
    with pytest.raises(TopicTooSmall):
        delivery.check()

    resize(topic, MAX_RECORD_BYTES)

    def settled() -> bool:
        clock.advance(1.1)
        return publishing.reconcile()

    eventually(settled, what="the outbox to be emptied")
    delivery.check()
    [after] = publish(publishing, request("/small"))
    assert [one.message.entry.package_id for one in author.journaled()] == [
        pending.package_id for pending in (before, large, behind, after)
    ]
    publishing.close()
