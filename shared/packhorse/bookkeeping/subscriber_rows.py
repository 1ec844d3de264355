"""Subscribers that have announced themselves to an author's publishers, as rows (R16).

The publisher's recorder writes them, queues and lists read them, and a mark asks whether it would
read the content of all of them. Ages are by the database's clock, `seen_at` is by the journal's.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from psycopg import AsyncConnection, Connection


class AnnouncementRow(NamedTuple):
    """A subscriber's last announcement, encoded, and when it entered the journal."""

    subscriber: str
    announcement: bytes
    seen_ms: int


class AnnouncementAge(NamedTuple):
    """A stored announcement and how old it is."""

    subscriber: str
    announcement: bytes
    seen_ms: int
    age_ms: int


_WRITE = """
    INSERT INTO bookkeeping.known_subscriber (agent, subscriber, announcement, seen_at)
    SELECT %b, name, announcement, to_timestamp(seen_ms / 1000.0)
    FROM unnest(%b::text[], %b::bytea[], %b::bigint[]) AS given (name, announcement, seen_ms)
    ON CONFLICT (agent, subscriber) DO UPDATE
    SET announcement = excluded.announcement, seen_at = excluded.seen_at
    WHERE excluded.seen_at >= known_subscriber.seen_at
"""

_READ_ALL = """
    SELECT subscriber, announcement, (extract(epoch FROM seen_at) * 1000)::bigint,
        greatest(0, extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint
    FROM bookkeeping.known_subscriber
    WHERE (forgotten_at IS NULL OR forgotten_at < seen_at)
"""

_READ_SILENT = f"""{_READ_ALL}
    AND agent = %s AND seen_at < clock_timestamp() - make_interval(secs => %s)
"""

_READ = f"""{_READ_SILENT}
    AND seen_at > clock_timestamp() - make_interval(secs => %s)
"""

_SEEN_SINCE = """
    SELECT subscriber FROM bookkeeping.known_subscriber WHERE subscriber = ANY(%s)
    AND seen_at > clock_timestamp() - make_interval(secs => %s) ORDER BY subscriber LIMIT 1
"""


def write(connection: Connection, agent: str, rows: Sequence[AnnouncementRow]) -> None:
    """Store announcements; one that is older than what is stored changes nothing."""
    if rows:
        connection.execute(_WRITE, (agent, *map(list, zip(*rows, strict=True))))


async def write_one(connection: AsyncConnection, agent: str, row: AnnouncementRow) -> None:
    """Store one announcement, as `write` does."""
    await connection.execute(_WRITE, (agent, *([column] for column in row)))


def read(
    connection: Connection, agent: str, *, above_s: float, below_s: float
) -> list[AnnouncementAge]:
    """Return who follows the agent and was last heard of between two ages, in seconds.

    Nobody who was forgotten and has not announced itself since.
    """
    rows = connection.execute(_READ, (agent, above_s, below_s)).fetchall()
    return [AnnouncementAge(*row) for row in rows]


def read_all(connection: Connection) -> list[AnnouncementAge]:
    """Return everybody who is known and not forgotten: one row for each agent that it follows."""
    rows = connection.execute(_READ_ALL).fetchall()
    return [AnnouncementAge(*row) for row in rows]


async def read_silent(
    connection: AsyncConnection, agent: str, above_s: float
) -> list[AnnouncementAge]:
    """Return who follows the agent and was last heard of longer ago, else as `read`."""
    rows = await connection.execute(_READ_SILENT, (agent, above_s))
    return [AnnouncementAge(*row) for row in await rows.fetchall()]


async def is_stored(connection: AsyncConnection, agent: str, subscriber: str) -> bool:
    """Return whether an announcement of the subscriber is stored, also of one that is forgotten."""
    rows = await connection.execute(
        "SELECT FROM bookkeeping.known_subscriber WHERE agent = %s AND subscriber = %s",
        (agent, subscriber),
    )
    return await rows.fetchone() is not None


async def forget_one(connection: AsyncConnection, agent: str, subscriber: str) -> int | None:
    """Forget a subscriber up to its stored announcement, and return that one's time in ms.

    Returns None when nobody knows it, or it is forgotten already.
    """
    updated = await connection.execute(
        """
        UPDATE bookkeeping.known_subscriber SET forgotten_at = seen_at
        WHERE agent = %s AND subscriber = %s
        AND (forgotten_at IS NULL OR forgotten_at < seen_at)
        RETURNING (extract(epoch FROM forgotten_at) * 1000)::bigint
        """,
        (agent, subscriber),
    )
    found = await updated.fetchone()
    return None if found is None else int(found[0])


def forgotten(connection: Connection, agent: str) -> dict[str, int]:
    """Return up to which announcement, in milliseconds, each forgotten subscriber is forgotten."""
    return dict(
        connection.execute(
            "SELECT subscriber, (extract(epoch FROM forgotten_at) * 1000)::bigint "
            "FROM bookkeeping.known_subscriber WHERE agent = %s AND forgotten_at IS NOT NULL",
            (agent,),
        ).fetchall()
    )


def remove_silent(
    connection: Connection, agent: str, older_than_s: float, abandoned_s: float, limit: int
) -> int:
    """Remove up to `limit` subscribers of an agent that were silent for that long.

    Returns how many. Also other agents', after `abandoned_s`, which is longer: for an agent whose
    publisher is gone for good nobody else does it, and while it is away nobody hears of them.
    """
    return connection.execute(
        """
        DELETE FROM bookkeeping.known_subscriber WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM bookkeeping.known_subscriber
            WHERE seen_at < clock_timestamp() - make_interval(secs => %s)
                AND (agent = %s OR seen_at < clock_timestamp() - make_interval(secs => %s))
            LIMIT %s))
        """,
        (older_than_s, agent, abandoned_s, limit),
    ).rowcount


def seen_since(connection: Connection, among: Collection[str], seconds: float) -> str | None:
    """Return the first by name of those subscribers that was heard of within `seconds`."""
    row = connection.execute(_SEEN_SINCE, ([*among], seconds)).fetchone()
    return None if row is None else str(row[0])


def names_but(connection: Connection, left_out: Collection[str], limit: int) -> list[str]:
    """Return up to `limit` names of subscribers of any agent, in order, without those left out."""
    rows = connection.execute(
        "SELECT DISTINCT subscriber FROM bookkeeping.known_subscriber "
        "WHERE NOT subscriber = ANY(%s) ORDER BY subscriber LIMIT %s",
        ([*left_out], limit),
    ).fetchall()
    return [name for (name,) in rows]


def names_among(connection: Connection, names: Collection[str]) -> set[str]:
    """Return those of the names that a subscriber of any agent has."""
    rows = connection.execute(
        "SELECT DISTINCT subscriber FROM bookkeeping.known_subscriber WHERE subscriber = ANY(%s)",
        ([*names],),
    ).fetchall()
    return {name for (name,) in rows}
