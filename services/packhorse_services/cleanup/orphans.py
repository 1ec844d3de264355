"""Blobs that no stored package stands for: how they are seen, and when they are old enough.

Two clocks must agree that the grace is over, the store's and the database's, so that a jump of
one of them removes nothing (R28).
"""

import itertools
from collections.abc import Sequence
from datetime import timedelta

from psycopg import Connection

from packhorse.blobs.api import BlobStore, StoredBlob
from packhorse.bookkeeping import stored_packages
from packhorse_services.cleanup.cleanup_lock import CleanupLock
from packhorse_services.cleanup.report import Candidate, RemovalReason

PREFIX = "packages/"
_PAGE = 500


class Orphans:
    """Looks for orphans in one store."""

    def __init__(self, blobs: BlobStore, grace: timedelta) -> None:
        self._blobs, self._grace = blobs, grace

    def see(self, lock: CleanupLock, run: int | None, limit: int) -> tuple[list[Candidate], int]:
        """Look at every blob, and remember the orphans among them as seen by `run`, if that is one.

        Returns up to `limit` of those whose grace is over, and how many orphans stay for now.
        """
        now_ms = self._blobs.now_ms()
        found: list[Candidate] = []
        young = 0
        blobs = self._blobs.list(PREFIX)
        while page := list(itertools.islice(blobs, _PAGE)):
            with lock.transaction() as connection:
                known = stored_packages.known(connection, [blob.key for blob in page])
                orphans = [blob for blob in page if blob.key not in known]
                if run is not None:
                    _remember(connection, run, orphans)
                due = self._due(connection, orphans, now_ms)
            young += len(orphans) - len(due)
            found += due[: limit - len(found)]
        if run is not None:
            with lock.transaction() as connection:
                connection.execute("DELETE FROM bookkeeping.orphan WHERE run <> %s", (run,))
        return found, young

    def _due(
        self, connection: Connection, orphans: Sequence[StoredBlob], now_ms: int
    ) -> list[Candidate]:
        rows = connection.execute(
            "SELECT key FROM bookkeeping.orphan "
            "WHERE key = ANY(%s) AND first_seen <= clock_timestamp() - %s",
            ([blob.key for blob in orphans], self._grace),
        ).fetchall()
        seen_long_ago = {key for (key,) in rows}
        grace_ms = self._grace / timedelta(milliseconds=1)
        return [
            Candidate(blob.key, RemovalReason.ORPHAN, blob.length)
            for blob in orphans
            if blob.key in seen_long_ago and now_ms - blob.modified_ms >= grace_ms
        ]


def forget(connection: Connection, keys: Sequence[str]) -> None:
    """Forget orphans that are gone."""
    connection.execute("DELETE FROM bookkeeping.orphan WHERE key = ANY(%s)", (list(keys),))


def _remember(connection: Connection, run: int, orphans: Sequence[StoredBlob]) -> None:
    connection.execute(
        "INSERT INTO bookkeeping.orphan (key, run) SELECT unnest(%s::text[]), %s "
        "ON CONFLICT (key) DO UPDATE SET run = excluded.run",
        ([blob.key for blob in orphans], run),
    )
