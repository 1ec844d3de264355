"""Where a cluster keeps what its connectors have heard, so that all its instances see it.

What holds and what is too old is decided by the database's clock (R28).
"""

import hashlib
import logging
import math
import threading
from dataclasses import dataclass

from psycopg import Connection

from packhorse.db.transactions import bookkeeping
from packhorse.errors import Permanent
from packhorse.topology.announcements import Announcement, InvalidAnnouncement, decode_content
from packhorse.topology.routing import Heard
from packhorse.topology.store_session import CHANNEL

logger = logging.getLogger(__name__)

MAX_PEERS = 512
"""Instances of other clusters that may announce at a time."""

MAX_KEPT_BYTES = 16 * 1024 * 1024
"""Of all announcements together."""

Key = tuple[str, str]
"""Owner and holder."""


class TooManyPeers(Permanent):
    """No further peer is taken until one of the others has gone."""


@dataclass(frozen=True, slots=True)
class Live:
    """All that holds at a moment; `now` is that moment, in seconds since 1970."""

    now: float
    heard: tuple[Heard, ...]
    until: float
    """The moment when the first of them holds no longer; `inf` for none."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One announcement as the operator sees it. Times are seconds since 1970, the database's."""

    owner: str
    holder: str
    address: str
    cluster: str
    received_at: float
    expires_at: float
    backoff_interval_s: float


def keep(
    connection: Connection, announcement: Announcement, holder: str, address: str, valid_s: float
) -> bool:
    """Let an announcement hold for `valid_s` seconds; return whether it brings news.

    `holder` is the instance whose connector asked for it, "" when the peer's connector sent it.
    Nothing is rewritten that stays the same. Raises `TooManyPeers`.
    """
    content = announcement.content()
    row = {
        "owner": announcement.owner,
        "holder": holder,
        "address": address[:200],
        "content": content,
        "digest": hashlib.sha256(content.encode()).hexdigest(),
        "backoff": announcement.backoff_interval_s,
        "valid": valid_s,
    }
    with bookkeeping(connection):
        if connection.execute(_RENEW, row).rowcount:
            return False
        [(others, kept)] = connection.execute(_OTHERS, row).fetchall()
        if others >= MAX_PEERS or kept + len(content.encode()) > MAX_KEPT_BYTES:
            raise TooManyPeers("this cluster hears of as many peers as it takes")
        connection.execute(_FORGET_OLD)
        connection.execute(_KEEP, row)
        connection.execute(_WAKE, (CHANNEL,))
    return True


def forget(connection: Connection, owner: str, holder: str) -> bool:
    """Let an announcement hold no longer; return whether it did."""
    with bookkeeping(connection):
        gone = connection.execute(
            "DELETE FROM topology.announcement WHERE owner = %s AND holder = %s "
            "RETURNING expires_at > clock_timestamp()",
            (owner, holder),
        ).fetchone()
        if gone is not None:
            connection.execute(_WAKE, (CHANNEL,))
    return gone is not None and bool(gone[0])


def peers(connection: Connection) -> list[Peer]:
    """Return who has announced what holds now."""
    with bookkeeping(connection):
        rows = connection.execute(_PEERS).fetchall()
    return [Peer(*row) for row in rows]


class AnnouncementReader:
    """Reads what holds; safe for threads. A content is fetched and parsed once, until it changes.

    What can't be parsed, such as from a newer version, is left out with a warning.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parsed: dict[Key, tuple[str, Announcement | None]] = {}

    def read(self, connection: Connection) -> Live:
        """Return what holds now, on a connection with the rights of the bookkeeper."""
        rows = connection.execute(_LIVE).fetchall()
        current = {(owner, holder): digest for _, owner, holder, digest, *_ in rows if owner}
        with self._lock:
            known = {key: self._parsed[key] for key in current if key in self._parsed}
        missing = [key for key, digest in current.items() if known.get(key, ("",))[0] != digest]
        known.update(_fetched(connection, missing))
        with self._lock:
            self._parsed = known
        until = min((row[5] for row in rows if row[5] is not None), default=math.inf)
        return Live(float(rows[0][0]), tuple(_heard(rows, known)), until)


def _heard(
    rows: list[tuple[float, str, str, str, int, float]],
    known: dict[Key, tuple[str, Announcement | None]],
) -> list[Heard]:
    found = []
    for _, owner, holder, _, changed_ms, _ in rows:
        _, announcement = known.get((owner, holder), ("", None))
        if announcement is not None:
            found.append(Heard(announcement, holder, int(changed_ms)))
    return found


def _fetched(connection: Connection, keys: list[Key]) -> dict[Key, tuple[str, Announcement | None]]:
    if not keys:
        return {}
    rows = connection.execute(_CONTENTS, ([o for o, _ in keys], [h for _, h in keys])).fetchall()
    return {
        (owner, holder): (digest, _decoded(content, owner))
        for owner, holder, digest, content in rows
    }


def _decoded(content: str, owner: str) -> Announcement | None:
    try:
        return decode_content(content, owner)
    except InvalidAnnouncement as error:
        logger.warning("a kept announcement is left out: %s", error)
        return None


_WAKE = "SELECT pg_notify(%s, '')"

_RENEW = """
UPDATE topology.announcement SET address = %(address)s, backoff_interval_s = %(backoff)s,
    received_at = clock_timestamp(),
    expires_at = clock_timestamp() + make_interval(secs => %(valid)s)
WHERE owner = %(owner)s AND holder = %(holder)s AND digest = %(digest)s
    AND expires_at > clock_timestamp()
"""

_OTHERS = """
SELECT count(*), coalesce(sum(octet_length(content)), 0) FROM topology.announcement
WHERE expires_at > clock_timestamp() AND (owner, holder) <> (%(owner)s, %(holder)s)
"""

_FORGET_OLD = """
DELETE FROM topology.announcement WHERE (owner, holder) IN (
    SELECT owner, holder FROM topology.announcement WHERE expires_at <= clock_timestamp()
    LIMIT 100 FOR UPDATE SKIP LOCKED)
"""

_KEEP = """
INSERT INTO topology.announcement (owner, holder, address, content, digest, backoff_interval_s,
    received_at, changed_at, expires_at)
VALUES (%(owner)s, %(holder)s, %(address)s, %(content)s, %(digest)s, %(backoff)s,
    clock_timestamp(), clock_timestamp(), clock_timestamp() + make_interval(secs => %(valid)s))
ON CONFLICT (owner, holder) DO UPDATE SET address = excluded.address, content = excluded.content,
    digest = excluded.digest, backoff_interval_s = excluded.backoff_interval_s,
    received_at = excluded.received_at, changed_at = excluded.changed_at,
    expires_at = excluded.expires_at
"""

_LIVE = """
SELECT extract(epoch FROM clock_timestamp())::float8, owner, holder, digest,
    (extract(epoch FROM changed_at) * 1000)::bigint, extract(epoch FROM expires_at)::float8
FROM (SELECT) AS always LEFT JOIN topology.announcement ON expires_at > clock_timestamp()
ORDER BY owner, holder
"""

_CONTENTS = """
SELECT owner, holder, digest, content FROM topology.announcement
WHERE (owner, holder) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
"""

_PEERS = """
SELECT owner, holder, address, content::jsonb -> 'local_cluster' ->> 'id',
    extract(epoch FROM received_at)::float8, extract(epoch FROM expires_at)::float8,
    backoff_interval_s
FROM topology.announcement WHERE expires_at > clock_timestamp() ORDER BY owner, holder
"""
