"""Releases: requests that go out later. All of it runs in the caller's transaction, as bookkeeper.

A release is SENT in the transaction of its package's outbox row, under the append lock; whatever
else ends or changes it writes the same row. So it goes out once or not at all, as it was last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from packhorse.errors import Permanent, Transient
from packhorse_services.publisher.outbox.request import ReleaseVersion

OPEN = ("DRAFT", "SCHEDULED", "FAILED")
"""States of what can still be changed, and sent."""
MAX_REASON = 2_000


class ReleaseChanged(Permanent):
    """The release was changed, cancelled or forgotten before it could be sent like that."""


class ReleaseMoved(Transient):
    """The release was changed while it was being sent; it is looked at again."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release as it is stored."""

    release_id: str
    name: str
    version: int
    """Grows with every change of what goes out, and when."""
    state: str
    fires_at: datetime | None
    job: int | None
    caller: str
    roots: list[str]
    action: str
    paths: list[str]
    deep_paths: list[str]
    targets: list[str]
    """The subscribers that it is for; none: all."""
    traceparent: str
    package_id: str
    """Empty before it is SENT."""
    reason: str
    """Why it FAILED, or what it waits for behind its moment."""
    created_at: datetime
    changed_at: datetime

    def is_due(self, version: int) -> bool:
        """Return whether this version is still to be sent."""
        return self.state == "SCHEDULED" and self.version == version


_COLUMNS = (
    b"release_id, name, version, state, fires_at, job, caller, roots, action, paths, deep_paths, "
    b"targets, traceparent, package_id, reason, created_at, changed_at"
)


def read(connection: Connection, agent: str, ids: Sequence[str]) -> dict[str, Release]:
    """Return those of the releases that there are, by id."""
    found = _fetch(connection, b"agent = %s AND release_id = ANY(%s)", (agent, list(ids)))
    return {one.release_id: one for one in found}


def find(connection: Connection, agent: str, named: str, *, lock: bool = False) -> Release | None:
    """Return the release of that id, or of that name: the open one, else the newest.

    With `lock` nobody else changes it until the transaction ends.
    """
    order = b"ORDER BY release_id = %s DESC, state = ANY(%s) DESC, created_at DESC LIMIT 1"
    found = _fetch(
        connection,
        b"agent = %s AND (release_id = %s OR name = %s AND name <> '') " + order,
        (agent, named, named, named, list(OPEN)),
        lock=lock,
    )
    return found[0] if found else None


def page(
    connection: Connection,
    agent: str,
    state: str | None,
    above: tuple[datetime, str] | None,
    limit: int,
) -> list[Release]:
    """Return releases by their moments, those without one last; behind a moment and an id."""
    return _fetch(
        connection,
        b"agent = %s AND (%s::text IS NULL OR state = %s) AND (%s::timestamptz IS NULL OR "
        b"(coalesce(fires_at, '9999-01-01 00:00:00Z'), release_id) > (%s, %s)) "
        b"ORDER BY coalesce(fires_at, '9999-01-01 00:00:00Z'), release_id LIMIT %s",
        (agent, state, state, *((above[0], *above) if above else (None, None, None)), limit),
    )


def count_open(connection: Connection, agent: str) -> int:
    """Return how many releases are open."""
    row: Any = connection.execute(
        "SELECT count(*) FROM bookkeeping.release WHERE agent = %s AND state = ANY(%s)",
        (agent, list(OPEN)),
    ).fetchone()
    return int(row[0])


def now(connection: Connection) -> datetime:
    """Return the database's time (R28)."""
    row: Any = connection.execute("SELECT clock_timestamp()").fetchone()
    moment: datetime = row[0]
    return moment


def put(connection: Connection, agent: str, release: Release) -> None:
    """Write a release, new or changed; its times are the database's.

    Raises `psycopg.errors.UniqueViolation` when an open one has the name.
    """
    connection.execute(
        """
        INSERT INTO bookkeeping.release (agent, release_id, name, version, state, fires_at, job,
            caller, roots, action, paths, deep_paths, targets, traceparent, reason)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
        ON CONFLICT (release_id) DO UPDATE SET version = EXCLUDED.version,
            state = EXCLUDED.state, fires_at = EXCLUDED.fires_at, job = EXCLUDED.job,
            caller = EXCLUDED.caller, roots = EXCLUDED.roots, action = EXCLUDED.action,
            paths = EXCLUDED.paths, deep_paths = EXCLUDED.deep_paths, targets = EXCLUDED.targets,
            traceparent = EXCLUDED.traceparent, reason = EXCLUDED.reason,
            changed_at = clock_timestamp()
        """,
        (
            *(agent, release.release_id, release.name, release.version, release.state),
            *(release.fires_at, release.job, release.caller, release.roots, release.action),
            *(release.paths, release.deep_paths, release.targets),
            *(release.traceparent, release.reason),
        ),
    )


def sent(connection: Connection, packages: Mapping[ReleaseVersion, str]) -> None:
    """Note, with the packages' commit, which releases they are.

    Raises `ReleaseMoved` when one is not what it was; nothing may be committed then.
    """
    written = connection.execute(
        """
        UPDATE bookkeeping.release AS release SET state = 'SENT', package_id = made.package_id,
            reason = '', changed_at = clock_timestamp()
        FROM unnest(%s::text[], %s::integer[], %s::text[]) AS made (release_id, version, package_id)
        WHERE release.release_id = made.release_id AND release.version = made.version
            AND release.state = 'SCHEDULED'
        """,
        (
            [one.release_id for one in packages],
            [one.version for one in packages],
            list(packages.values()),
        ),
    )
    if written.rowcount != len(packages):
        raise ReleaseMoved("a release was changed while it was being sent")


def failed(connection: Connection, which: ReleaseVersion, reason: str) -> None:
    """End a version that can't be sent, unless it is another one, or sent, by now."""
    _note(connection, which, "FAILED", reason)


def waits(connection: Connection, which: ReleaseVersion, reason: str) -> None:
    """Say what a version waits for behind its moment."""
    _note(connection, which, "SCHEDULED", reason)


def forget(connection: Connection, older_than_s: float, limit: int) -> int:
    """Remove up to `limit` releases that ended so long ago; returns how many."""
    return connection.execute(
        """
        DELETE FROM bookkeeping.release WHERE release_id IN (
            SELECT release_id FROM bookkeeping.release
            WHERE state IN ('SENT', 'FAILED', 'CANCELLED')
                AND changed_at < clock_timestamp() - make_interval(secs => %s)
            LIMIT %s FOR UPDATE SKIP LOCKED)
        """,
        (older_than_s, limit),
    ).rowcount


def _note(connection: Connection, which: ReleaseVersion, state: str, reason: str) -> None:
    connection.execute(
        "UPDATE bookkeeping.release SET state = %s, reason = %s, changed_at = clock_timestamp() "
        "WHERE release_id = %s AND version = %s AND state = 'SCHEDULED'",
        (state, reason[:MAX_REASON].replace("\0", ""), which.release_id, which.version),
    )


def _fetch(
    connection: Connection, condition: bytes, parameters: Sequence[object], *, lock: bool = False
) -> list[Release]:
    statement = b"SELECT " + _COLUMNS + b" FROM bookkeeping.release WHERE " + condition
    with connection.cursor(row_factory=class_row(Release)) as cursor:
        return cursor.execute(statement + (b" FOR UPDATE" if lock else b""), parameters).fetchall()
