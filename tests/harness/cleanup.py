"""A cleanup with its publisher's tables, a journal and a blob folder; and ways to harm it."""

import itertools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from packhorse.blobs.api import StoredBlob, WrittenBlob, package_key
from packhorse.blobs.filesystem import FilesystemBlobs
from packhorse.db.connect import connect
from packhorse.messaging.api import Journal, JournalUnavailable, Outgoing
from packhorse.messaging.open import open_journal
from packhorse.messaging.reading import read_range
from packhorse.messaging.topics import standard_topics
from packhorse.wire.package_codec import PACKAGE_ID_HEADER
from packhorse.wire.topics import Topics
from packhorse_services.cleanup.report import CleanupRun
from packhorse_services.cleanup.runner import run_by_hand
from packhorse_services.cleanup.sweep import Sweep

TOPIC = Topics().package
GRACE = timedelta(hours=24)
DAY_S = 25 * 3600
_numbers = itertools.count(1)


@dataclass
class Altered:
    """Something whose methods can be replaced one by one; the rest goes through."""

    inner: Any
    replaced: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return self.replaced.get(name) or getattr(self.inner, name)


def journal_away(*_: Any, **__: Any) -> Any:
    """Stands for a method of a journal that is away."""
    raise JournalUnavailable("the broker is away")


class AgingFolder(FilesystemBlobs):
    """A blob folder whose blobs a test makes older."""

    def age(self, seconds: float) -> None:
        for path in self.root.glob("packages/*/*"):
            status = path.stat()
            os.utime(path, (status.st_atime, status.st_mtime - seconds))


class AgingMemory:
    """As much of a blob store as the cleanup needs, without a disk."""

    def __init__(self) -> None:
        self._blobs: dict[str, StoredBlob] = {}
        self._now_ms = 1_700_000_000_000

    def put(self, key: str, chunks: Iterable[bytes]) -> WrittenBlob:
        length = sum(map(len, chunks))
        self._blobs[key] = StoredBlob(key, length, self._now_ms)
        return WrittenBlob(key, length, "", created=True)

    def head(self, key: str) -> StoredBlob | None:
        return self._blobs.get(key)

    def delete(self, key: str) -> None:
        self._blobs.pop(key, None)

    def list(self, prefix: str) -> Iterator[StoredBlob]:
        yield from [blob for key, blob in self._blobs.items() if key.startswith(prefix)]

    def now_ms(self) -> int:
        return self._now_ms

    def age(self, seconds: float) -> None:
        self._now_ms += int(seconds * 1000)

    def close(self) -> None:
        pass


class Stage:
    """One author's stored packages, as its publisher makes them step by step."""

    def __init__(self, database_url: str, blobs: Any, journal: Journal | None = None) -> None:
        self.url, self.blobs = database_url, blobs
        self.journal = journal or open_journal(
            f"memory://cleanup-{next(_numbers)}", client_name="tests"
        )
        self.journal.create_topics(standard_topics(Topics()))
        self.database = connect(database_url, "tests", autocommit=True)

    def close(self) -> None:
        self.database.close()
        self.journal.close()
        self.blobs.close()

    def acts(self) -> list[tuple[str, str]]:
        """Return who has done what, as rows of the audit say it."""
        rows = self.database.execute("SELECT issued_by, action FROM bookkeeping.audit ORDER BY id")
        return [(who, what) for who, what in rows.fetchall()]

    def replace_cleaner(self) -> None:
        """Let another one take the lock over."""
        self.database.execute("UPDATE bookkeeping.cleanup SET epoch = epoch + 1")

    def put(self) -> str:
        """Store a body under a new package id."""
        package_id = f"dstrpck-{next(_numbers)}-{secrets.token_hex(4)}"
        self.blobs.put(package_key(package_id), [package_id.encode()])
        return package_id

    def commit(self, package_id: str) -> None:
        """Write the rows of the stored package and of the outbox, together."""
        with self.database.transaction():
            self.database.execute(
                "INSERT INTO bookkeeping.stored_package (key, package_id, length, sha256) "
                "VALUES (%s, %s, %s, 'sha')",
                (package_key(package_id), package_id, len(package_id)),
            )
            self.database.execute(
                "INSERT INTO bookkeeping.outbox "
                "(epoch, sequence, snapshot, package_id, entry, value) "
                "VALUES (1, %s, 1, %s, 'x', 'x')",
                (next(_numbers), package_id),
            )

    def append(self, package_id: str) -> int:
        record = Outgoing(b"x", {PACKAGE_ID_HEADER: package_id.encode()})
        return self.journal.append(TOPIC, record).result(120).offset

    def mark(self, package_id: str, offset: int, *, with_stored: bool = True) -> None:
        """Note the offset, as the publisher does after an append."""
        with self.database.transaction():
            self.database.execute(
                "UPDATE bookkeeping.outbox SET log_offset = %s, value = NULL WHERE package_id = %s",
                (offset, package_id),
            )
            if with_stored:
                self.database.execute(
                    "UPDATE bookkeeping.stored_package SET log_offset = %s WHERE package_id = %s",
                    (offset, package_id),
                )

    def publish(self) -> str:
        """Do all of it."""
        package_id = self.put()
        self.commit(package_id)
        self.mark(package_id, self.append(package_id))
        return package_id

    def has(self, package_id: str) -> bool:
        return self.blobs.head(package_key(package_id)) is not None

    def rows(self) -> dict[str, int | None]:
        """Return the stored packages with their offsets."""
        return dict(
            self.database.execute(
                "SELECT package_id, log_offset FROM bookkeeping.stored_package"
            ).fetchall()
        )

    def lose_rows(self, *package_ids: str) -> None:
        """Forget packages as a backup restored from before them does."""
        for table in ("stored_package", "outbox"):
            self.database.execute(
                psycopg.sql.SQL("DELETE FROM bookkeeping.{} WHERE package_id = ANY(%s)").format(
                    psycopg.sql.Identifier(table)
                ),
                (list(package_ids),),
            )

    def forget_log(self, before: int | None = None) -> None:
        """Truncate the log, to its end by default."""
        end = self.journal.bounds(TOPIC).next
        self.journal.truncate(TOPIC, end if before is None else before)

    def let_pass(
        self, seconds: float = DAY_S, *, store: bool = True, database: bool = True
    ) -> None:
        """Make everything so much older by one clock or by both."""
        if store:
            self.blobs.age(seconds)
        if database:
            self.database.execute(
                "UPDATE bookkeeping.orphan SET first_seen = first_seen - %s",
                (timedelta(seconds=seconds),),
            )

    def sweep(
        self, *, journal: Any = None, blobs: Any = None, grace: timedelta = GRACE, **bounds: int
    ) -> Sweep:
        return Sweep(journal or self.journal, TOPIC, blobs or self.blobs, grace, **bounds)

    def run(self, *, dry_run: bool = False, **altered: Any) -> CleanupRun:
        return run_by_hand(self.url, self.sweep(**altered), dry_run=dry_run)

    def named(self) -> set[str]:
        """Return the packages that the log names."""
        bounds = self.journal.bounds(TOPIC)
        records = read_range(self.journal, TOPIC, bounds.oldest, bounds.next)
        return {record.headers[PACKAGE_ID_HEADER].decode() for record in records}


@contextmanager
def staged(database_url: str, folder: Path, journal: Journal | None = None) -> Iterator[Stage]:
    stage = Stage(database_url, AgingFolder(folder), journal)
    try:
        yield stage
    finally:
        stage.close()
