"""What is imported: packages in both journals, the bare pages in a topic, and what must result."""

import random
import tempfile
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
import psycopg
from confluent_kafka.admin import AdminClient, NewTopic

from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.content.tree import copy_in
from packhorse.messaging.api import Journal, Outgoing
from packhorse.messaging.open import open_journal
from packhorse.wire.messages import Action
from packhorse.wire.package_codec import encode_package
from packhorse.wire.topics import Topics
from tests.harness.feed import Feed
from tests.harness.kafka.broker import RunningKafka
from tests.harness.postgres import Databases
from tests.harness.realistic_pages import page

_PACKAGE_BYTES = 5_000
_IN_FLIGHT = 1_000
_SECTION = 40
"""Pages in a folder."""

_HASH = """
    SELECT md5(string_agg(path || content.digest(type, properties, binaries), ',' ORDER BY path))
    FROM content.node WHERE type <> 'folder'
"""


@dataclass
class Material:
    """The same packages in every form."""

    databases: Databases
    broker: RunningKafka
    packages: list[list[Node]]
    topics: Topics
    journals: dict[str, str]
    blobs: str
    rows_topic: str
    nodes: int
    _hashes: dict[int, str] = field(default_factory=dict)

    def mark(self, share: float) -> tuple[int, str]:
        """Return how many packages are in once a path is there, at about a share of all."""
        count = int(len(self.packages) * share)
        while count % 10 == 1:  # that one changes a page that is there already
            count -= 1
        return count, self.packages[count - 1][0].path

    def final(self, count: int) -> list[Node]:
        """Return the nodes as the first `count` packages leave them, in path order."""
        left = {node.path: node for nodes in self.packages[:count] for node in nodes}
        return [left[path] for path in sorted(left)]

    def check(self, url: str, count: int) -> None:
        """Compare a database with the pages themselves. Raises `SystemExit`."""
        if count not in self._hashes:
            expected = self.databases.new("expected")
            with psycopg.connect(expected) as connection:
                copy_in(connection, self.final(count))
            self._hashes[count] = _hash(expected)
        if _hash(url) != self._hashes[count]:
            raise SystemExit(f"{url.rpartition('/')[2]} holds something else than the packages")


def _hash(url: str) -> str:
    with psycopg.connect(url) as connection:
        row: Any = connection.execute(_HASH).fetchone()
        return str(row[0])


@contextmanager
def material(
    databases: Databases, broker: RunningKafka, packages: int, nodes: int
) -> Iterator[Material]:
    """Write the packages to both journals, and their nodes to a topic of rows."""
    topics = Topics.named(f"bench{uuid.uuid4().hex[:8]}", {})
    urls = {"kafka": broker.url, "sql": databases.new("journal")}
    with tempfile.TemporaryDirectory() as folder:
        pages = _pages(packages, nodes)
        journals = [open_journal(url, client_name="bench") for url in urls.values()]
        feeds = [
            Feed(each, open_blobs(folder), producer="bench", topics=topics) for each in journals
        ]
        _append(feeds[0], [(each, topics.package) for each in journals], pages)
        rows = f"{topics.package}_rows"
        _write_rows(broker, rows, pages)
        yield Material(databases, broker, pages, topics, urls, folder, rows, nodes)


def _pages(packages: int, nodes: int) -> list[list[Node]]:
    """Return packages of a page and what lies below it; every tenth changes an earlier one."""
    source = random.Random(1)
    size = _PACKAGE_BYTES // nodes
    made = []
    for number in range(packages):
        chosen = source.randrange(number) if number % 10 == 0 and number else number
        top = f"/content/site/section-{chosen // _SECTION}/page-{chosen}"
        below = [f"{top}/component-{one}" for one in range(1, nodes)]
        made.append([page(path, source, size) for path in (top, *below)])
    return made


def _append(
    feed: Feed, journals: Sequence[tuple[Journal, str]], packages: Iterable[Sequence[Node]]
) -> None:
    waiting: deque[Future[Any]] = deque()
    for nodes in packages:
        encoded = encode_package(feed.message(Action.ADD, [node.path for node in nodes], [], nodes))
        for journal, topic in journals:
            record = Outgoing(encoded.value, dict(encoded.headers))
            waiting.append(journal.append(topic, record))
        while len(waiting) > _IN_FLIGHT:
            waiting.popleft().result(120)
    for each in waiting:
        each.result(120)


def _write_rows(broker: RunningKafka, topic: str, packages: Iterable[Sequence[Node]]) -> None:
    """Write each node as a record: its path is the key, its properties are the value."""
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap}
    wanted = NewTopic(topic, num_partitions=1, replication_factor=1)
    admin = AdminClient(servers)
    admin.create_topics([wanted])[topic].result(60)
    producer = confluent_kafka.Producer(
        {**servers, "compression.type": "lz4", "linger.ms": 50, "enable.idempotence": True}
    )
    for nodes in packages:
        for node in nodes:
            producer.produce(topic, node.properties.encode(), node.path.encode())
        producer.poll(0)
        if len(producer) > 50_000:
            producer.flush()
    producer.flush()
