"""How far a subscriber's database has come, by its own rows: who audits it reads them.

The subscriber's importer and statuses write these tables, in statements of their own.
"""

from typing import NamedTuple

from psycopg import Connection


class StoredPosition(NamedTuple):
    """Up to where one publisher agent's packages are processed."""

    agent: str
    offset: int
    started: int
    """It has not imported everything up to this offset; -1 when it has."""
    journal_id: str


class StoredDecision(NamedTuple):
    """What the subscriber did with one package, while it still remembers."""

    agent: str
    offset: int
    status: str
    """`LEFT_OUT` where it was not for this subscriber."""


LEFT_OUT = "LEFT_OUT"


class LoadedSnapshot(NamedTuple):
    """The last snapshot that was loaded into a database, by its own record."""

    id: str
    offset: int
    agents: tuple[str, ...]
    subscriber: str
    """Whom it is for; empty for everybody."""
    left_out: str
    """Which packages up to there are not in it, as in a `ContentSnapshot`."""


def read_positions(connection: Connection) -> list[StoredPosition]:
    """Return the positions, by the publisher agent's name."""
    rows = connection.execute(
        "SELECT publisher_agent, log_offset, started_offset, journal_id "
        "FROM bookkeeping.position ORDER BY publisher_agent"
    ).fetchall()
    return [StoredPosition(*row) for row in rows]


def read_decisions(connection: Connection, limit: int) -> list[StoredDecision]:
    """Return up to `limit` statuses of the journal of each position, none from above it.

    By publisher agent and offset: those that are not sent yet, and older ones that it still has.
    """
    rows = connection.execute(
        "SELECT status.publisher_agent, status.log_offset, "
        "CASE WHEN status.left_out THEN %s ELSE status.status END "
        "FROM bookkeeping.status JOIN bookkeeping.position USING (publisher_agent) "
        "WHERE status.log_offset <= position.log_offset "
        "AND status.journal_id = position.journal_id ORDER BY 1, 2 LIMIT %s",
        (LEFT_OUT, limit),
    ).fetchall()
    return [StoredDecision(*row) for row in rows]


def read_loaded_snapshot(connection: Connection, journal_id: str) -> LoadedSnapshot | None:
    """Return the snapshot of this journal that was loaded; None when there is no record of one."""
    row = connection.execute(
        "SELECT snapshot_id, log_offset, publisher_agents, subscriber, left_out "
        "FROM bookkeeping.joined_snapshot WHERE journal_id = %s",
        (journal_id,),
    ).fetchone()
    if row is None:
        return None
    snapshot_id, offset, agents, subscriber, left_out = row
    return LoadedSnapshot(snapshot_id, offset, tuple(agents), subscriber, left_out)


class StoredFilter(NamedTuple):
    """What a subscriber includes, excludes and maps; all empty where it takes all as it is."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    map_paths: tuple[tuple[str, str], ...] = ()
    exclude_properties: tuple[str, ...] = ()


def read_filter(connection: Connection) -> StoredFilter:
    """Return the subscriber's filter."""
    row = connection.execute(
        "SELECT include, exclude, map_paths, exclude_properties FROM bookkeeping.content_filter"
    ).fetchone()
    if row is None:
        return StoredFilter()
    include, exclude, map_paths, properties = row
    mapped = tuple(sorted(map_paths.items()))
    return StoredFilter(tuple(include), tuple(exclude), mapped, tuple(properties))
