"""An author, a log, a subscriber and a blob folder that are marked and swept; without Spark."""

import hashlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import IsolationLevel

from packhorse.blobs.api import StoredBlob, binary_key
from packhorse.blobs.filesystem import FilesystemBlobs
from packhorse.content import tree
from packhorse.content.node import Binary, Node
from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from packhorse.messaging.open import open_journal
from packhorse.packages.apply import apply
from packhorse.wire.messages import Action, PackageMessage
from packhorse.wire.package_codec import decode_package, decode_stored_package, encode_package
from packhorse_services.pipeline.sweep.marking import HOUR_MS, mark
from packhorse_services.pipeline.sweep.report import Totals
from packhorse_services.pipeline.sweep.stores import Stores
from packhorse_services.pipeline.sweep.sweeping import SweepTimes, sweep
from packhorse_services.pipeline.sweep.work import Found
from tests.harness.feed import TOPICS, Feed
from tests.harness.plain_report import PlainReport

AT_ONCE = SweepTimes(earliest_ms=0)
_numbers = itertools.count(1)

EMPTY = "TRUNCATE content.node; DELETE FROM bookkeeping.outbox; " + (
    "DELETE FROM bookkeeping.stored_package; DELETE FROM bookkeeping.known_subscriber"
)


@dataclass
class Export:
    """An export under way: its snapshot is taken, its package not yet committed."""

    connection: psycopg.Connection
    message: PackageMessage


class Yard:
    """All that refers to binaries, and the steps in which references come, move and go."""

    def __init__(self, author_url: str, subscriber_url: str, folder: Path, journal: str) -> None:
        self.author_url, self.subscriber_url = author_url, subscriber_url
        self.folder, self.journal_url = folder, journal
        self.blobs = FilesystemBlobs(folder)
        self.journal = open_journal(journal, client_name="tests")
        self.feed = Feed(self.journal, self.blobs)
        self.author = connect(author_url, "tests", autocommit=True)
        self.subscriber = connect(subscriber_url, "tests", autocommit=True)
        self.applied = -1
        self.remembered: dict[StoredBlob, set[Found]] = {}

    def close(self) -> None:
        for connection in (self.author, self.subscriber):
            connection.close()
        self.journal.close()
        self.blobs.close()

    @property
    def stores(self) -> Stores:
        return Stores(
            self.blobs,
            self.journal,
            TOPICS.package,
            str(self.folder),
            self.journal_url,
            self.author_url,
            {"sub": self.subscriber_url},
        )

    def mark(self, report: Any = None, **options: Any) -> Any:
        """Mark and return the report."""
        report = PlainReport(remembered=self.remembered) if report is None else report
        mark(report, self.stores, f"mark-{next(_numbers)}-00000000", parts=1, **options)
        return report

    def sweep(self, report: Any, **options: Any) -> Totals:
        options = {"patience": AT_ONCE, "parts": 1, **options}
        return sweep(report, self.stores, **options)[1]

    # The author.

    def upload(self, content: bytes) -> Binary:
        written = self.blobs.put(binary_key(hashlib.sha256(content).hexdigest()), [content])
        return Binary("data", written.sha256, written.length, "text/plain")

    def write(self, path: str, binary: Binary, *more: Binary) -> None:
        """Write a node whose binaries have been uploaded or renewed."""
        with self.author.transaction():
            tree.upsert(self.author, [Node(path, "page", binaries=(binary, *more))])

    def remove(self, path: str) -> None:
        with self.author.transaction():
            tree.delete(self.author, [path])

    def begin_export(self, path: str) -> Export:
        # As long as the example lasts: one that is held for others' steps is idle to the server.
        forever = Timeouts(idle_in_transaction_ms=0)
        connection = connect(self.author_url, "packhorse-publisher", timeouts=forever)
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        nodes = list(tree.stream(connection, path))
        if nodes:
            message = self.feed.message(Action.ADD, (), [path], nodes)
        else:
            message = self.feed.message(Action.DELETE, [path], (), None)
        return Export(connection, message)

    def commit_export(self, export: Export) -> None:
        """Put the package into the outbox; it waits for the journal."""
        entry = export.message.entry
        with export.connection as connection:
            connection.execute(
                "INSERT INTO bookkeeping.outbox "
                "(epoch, sequence, snapshot, package_id, entry, value) "
                "VALUES (1, %s, 1, %s, %s, %s)",
                (
                    next(_numbers),
                    entry.package_id,
                    b"",
                    encode_package(export.message).value,
                ),
            )

    def append_one(self) -> None:
        """Append the package that has waited longest, and forget its bytes."""
        row = self.author.execute(
            "SELECT package_id, value FROM bookkeeping.outbox WHERE log_offset IS NULL "
            "ORDER BY sequence LIMIT 1"
        ).fetchone()
        if row is None:
            return
        message = decode_stored_package(row[1])
        offset = self.feed.append(message)
        self.author.execute(
            "UPDATE bookkeeping.outbox SET log_offset = %s, value = NULL WHERE package_id = %s",
            (offset, row[0]),
        )

    # The others.

    def import_next(self) -> None:
        for record in self.feed.records():
            if record.offset > self.applied:
                message = decode_package(record.headers, record.value)
                with self.subscriber.transaction():
                    apply(self.subscriber, [message], self.blobs)
                self.applied = record.offset
                return

    def forget_log(self) -> None:
        """Cut off what the subscriber has imported, and stored bodies that nothing names then."""
        self.journal.truncate(TOPICS.package, self.applied + 1)
        waiting = {f"packages/{row[0][-2:]}/{row[0]}" for row in self._unsent()}
        named = {record.headers["package-id"].decode() for record in self.feed.records()}
        for blob in list(self.blobs.list("packages/")):
            if blob.key.rpartition("/")[2] not in named and blob.key not in waiting:
                self.blobs.delete(blob.key)

    def age(self, seconds: float = 25 * 3600) -> None:
        """Make all blobs older."""
        for path in self.folder.glob("[bps]*/*/*"):
            status = path.stat()
            os.utime(path, (status.st_atime, status.st_mtime - seconds))

    def has(self, binary: Binary) -> bool:
        return self.blobs.head(binary_key(binary.sha256)) is not None

    def keys(self) -> set[str]:
        return {blob.key for blob in self.blobs.list("binaries/")}

    def referenced(self) -> set[str]:
        """Return every binary that somebody refers to, in flight or not, found independently."""
        nodes: list[Node] = []
        for connection in (self.author, self.subscriber):
            with connection.transaction():
                nodes += tree.stream(connection, "/")
        messages = [decode_package(one.headers, one.value) for one in self.feed.records()]
        messages += [decode_stored_package(value) for _, value in self._unsent()]
        return {*keys_of(nodes), *(key for one in messages for key in keys_in(one, self.blobs))}

    def _unsent(self) -> list[Any]:
        return self.author.execute(
            "SELECT package_id, value FROM bookkeeping.outbox WHERE log_offset IS NULL"
        ).fetchall()


def keys_of(nodes: Iterable[Node]) -> Iterator[str]:
    for node in nodes:
        for binary in node.binaries:
            yield binary_key(binary.sha256)


def keys_in(message: PackageMessage, blobs: FilesystemBlobs) -> set[str]:
    from packhorse.packages.body import unpack

    return set(keys_of(unpack(message, blobs)))


@contextmanager
def yard_of(databases: Any, folder: Path) -> Iterator[Yard]:
    """Give a yard with databases of its own."""
    name = f"memory://sweep-{next(_numbers)}"
    yard = Yard(databases.new("author"), databases.new("sub"), folder, name)
    try:
        yield yard
    finally:
        yard.close()


def wait_a_moment() -> None:
    """Let the clock of a file system, which has a resolution, come to another time."""
    time.sleep(0.02)


HOURS = HOUR_MS
