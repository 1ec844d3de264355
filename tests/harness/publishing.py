"""An author with any number of publisher replicas, and the faults that they may meet."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from packhorse.blobs.api import BlobStore
from packhorse.clock import Clock, SystemClock
from packhorse.content import tree
from packhorse.content.node import Node
from packhorse.db.connect import connect
from packhorse.db.metadata import IMPORTER
from packhorse.db.roles import act_as
from packhorse.messaging.api import (
    Appended,
    AppendUnknown,
    Bounds,
    Journal,
    JournalUnavailable,
    NotAppended,
    Outgoing,
)
from packhorse.messaging.topics import standard_topics
from packhorse.wire.messages import Action, PackageMessage
from packhorse.wire.package_codec import decode_package
from packhorse.wire.topics import Topics
from packhorse_services.publisher.outbox.append_lock import AppendLock, lock_connection
from packhorse_services.publisher.outbox.journal_appender import JournalAppender
from packhorse_services.publisher.outbox.request import DistributionRequest, Pending
from packhorse_services.publisher.publish.draft_export import DraftExporter
from packhorse_services.publisher.publish.early_export import EarlyPublishing, early_connection
from packhorse_services.publisher.publish.packer import Packer
from packhorse_services.publisher.publish.publish_queue import Publishes
from packhorse_services.publisher.publish.publishing import JournalPatience, Publishing
from tests.harness.borrowing import borrowed
from tests.harness.crash import Crash
from tests.harness.journals import everything

TOPICS = Topics()
AGENT = "main"
IMPATIENT = JournalPatience(reconcile_s=0.2, retry_s=0.01)
ONE_TRY = JournalPatience(reconcile_s=0.0, retry_s=0.0)
"""Leaves to others what one look did not settle."""


@dataclass(frozen=True)
class Placed:
    """A package and where it is."""

    offset: int
    message: PackageMessage

    @property
    def number(self) -> tuple[int, int]:
        return self.message.entry.epoch, self.message.entry.sequence


class Author:
    """One author database with its journal and blobs."""

    def __init__(
        self, database_url: str, journal: Journal, blobs: BlobStore, topics: Topics = TOPICS
    ) -> None:
        self.database_url, self.journal, self.blobs = database_url, journal, blobs
        self.topics = topics
        journal.create_topics(standard_topics(topics))
        self._open: list[Publishing | EarlyPublishing] = []

    def write(self, *nodes: Node) -> None:
        with connect(self.database_url, "tests") as connection:
            act_as(connection, IMPORTER)
            tree.upsert(connection, nodes)

    def replica(
        self,
        *,
        journal: Journal | None = None,
        lock: AppendLock | None = None,
        clock: Clock | None = None,
        patience: JournalPatience = IMPATIENT,
        agent: str = AGENT,
    ) -> Publishing:
        """Return another publisher of this author."""
        clock = clock or SystemClock()
        publishing = Publishing(
            lock or AppendLock(self.lock_connection),
            Packer(self.blobs, agent, "instance", clock),
            JournalAppender(journal or self.journal, self.topics.package),
            clock=clock,
            patience=patience,
        )
        self._open.append(publishing)
        return publishing

    def early(
        self,
        *,
        publishing: Publishing | None = None,
        packer: Packer | None = None,
        open_connection: Callable[[], psycopg.Connection] | None = None,
        agent: str = AGENT,
    ) -> EarlyPublishing:
        """Return another publisher of this author, which exports before it takes the lock."""
        packer = packer or Packer(self.blobs, agent, "instance", SystemClock())
        early = EarlyPublishing(
            publishing or self.replica(agent=agent),
            DraftExporter(packer, group_bytes=2**21),
            open_connection or self.early_connection,
            agent=agent,
        )
        self._open.append(early)
        return early

    def early_connection(self) -> psycopg.Connection:
        return early_connection(self.database_url, "tests-early")

    def lock_connection(self) -> psycopg.Connection:
        return lock_connection(self.database_url, "tests-lock", lock_ms=20_000)

    def journaled(self) -> list[Placed]:
        """Return every package in the journal, in order."""
        records = everything(self.journal, self.topics.package)
        return [Placed(r.offset, decode_package(r.headers, r.value)) for r in records]

    def rows(self, query: str, *parameters: object) -> list[Any]:
        with borrowed(self.database_url) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def close(self) -> None:
        for publishing in self._open:
            publishing.close()


def request(
    *paths: str,
    action: Action = Action.ADD,
    deep: Sequence[str] = (),
    key: str | None = None,
    roots: Sequence[str] = ("/",),
) -> DistributionRequest:
    return DistributionRequest(
        action, paths, tuple(deep), "tester", tuple(roots), idempotency_key=key
    )


def page(path: str, version: int = 0) -> Node:
    return Node(path, "page", f'{{"version": {version}}}')


def publish(publishing: Publishes, *requests: DistributionRequest) -> list[Pending]:
    """Publish requests as one group."""
    group = [Pending(requested) for requested in requests]
    while unanswered := [pending for pending in group if not pending.future.done()]:
        publishing.publish(unanswered)
    return group


class Fuse:
    """Burns down step by step; at its end, and ever after, everything raises `Crash`."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def reset(self, steps: int) -> None:
        """Burn down from there."""
        self._left = steps

    def burn(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Crash

    @contextmanager
    def around(self) -> Iterator[None]:
        """A step that a crash may come before or after."""
        self.burn()
        yield
        self.burn()

    @property
    def blown(self) -> bool:
        return self._left < 0


def fragile_lock(author: Author, fuse: Fuse) -> AppendLock:
    """Return a lock on whose connection every exchange with the server is a step."""
    return AppendLock(lambda: fragile_connection(author.lock_connection(), fuse))


def fragile_connection(connection: psycopg.Connection, fuse: Fuse) -> psycopg.Connection:
    """Make every exchange with the server a step."""
    wait = connection.wait

    def stepwise(*arguments: Any, **options: Any) -> Any:
        with fuse.around():
            return wait(*arguments, **options)

    connection.wait = stepwise  # type: ignore[method-assign]
    return connection


class JournalDouble:
    """A journal of which only `append` is replaced."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class FragileJournal(JournalDouble):
    """Every append is a step that a crash may come before or after."""

    def __init__(self, journal: Journal, fuse: Fuse) -> None:
        super().__init__(journal)
        self._fuse = fuse

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        with self._fuse.around():
            return self._journal.append(topic, record)


class LossyJournal(JournalDouble):
    """Loses records, and acknowledgements, at random; honest about which it knows of (R3)."""

    def __init__(self, journal: Journal, random_: random.Random, faults: float = 0.4) -> None:
        super().__init__(journal)
        self._random, self._faults = random_, faults
        self.lost_records = 0
        self.lost_acknowledgements = 0
        self._lock = threading.Lock()

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        with self._lock:
            return self._append(topic, record)

    def _append(self, topic: str, record: Outgoing) -> Future[Appended]:
        if self._random.random() >= self._faults:
            return self._journal.append(topic, record)
        failed: Future[Appended] = Future()
        fate = self._random.randrange(3)
        if fate == 0:
            failed.set_exception(NotAppended("dropped on the way"))
            self.lost_records += 1
            return failed
        if fate == 1:
            self._journal.append(topic, record).result()
            self.lost_acknowledgements += 1
        failed.set_exception(AppendUnknown("the acknowledgement was lost"))
        return failed


class AwayJournal(JournalDouble):
    """A journal that is away when asked to be, and whose appends can be held back."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.away = False
        self.may_append = threading.Event()
        self.may_append.set()
        self.requested = threading.Event()

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        self.requested.set()
        assert self.may_append.wait(120)
        if not self.away:
            return self._journal.append(topic, record)
        failed: Future[Appended] = Future()
        failed.set_exception(NotAppended("the journal is away"))
        return failed

    def bounds(self, topic: str, partition: int = 0, *, after_appends: bool = False) -> Bounds:
        self._check()
        return self._journal.bounds(topic, partition, after_appends=after_appends)

    def identity(self, topic: str) -> str:
        self._check()
        return self._journal.identity(topic)

    def _check(self) -> None:
        if self.away:
            raise JournalUnavailable("the journal is away")
