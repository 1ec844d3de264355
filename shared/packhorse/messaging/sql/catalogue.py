"""The topics of the SQL journal: what there are, how they are made, what is wrong with them."""

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from packhorse.messaging.api import Bounds, TopicMissing, TopicSpec, topic_missing


@dataclass(frozen=True, slots=True)
class SqlTopic:
    """A topic as it was created; another creation of the same name is another topic."""

    id: int
    spec: TopicSpec
    identity: str
    partition_ids: tuple[int, ...]

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class SqlPartition:
    """A counter row. `open_start` is where the segment begins that takes appends, if any does."""

    id: int
    bounds: Bounds
    open_start: int | None


_TOPICS = """
    SELECT t.id, t.name, t.retention_ms, t.max_record_bytes,
           (SELECT id FROM journal.identity) || '/' || t.creation_id,
           array_agg(p.id ORDER BY p.number)
    FROM journal.topic t JOIN journal.partition p ON p.topic_id = t.id
    WHERE t.name = ANY(%s) OR %s
    GROUP BY t.id
"""


def find_topics(
    connection: psycopg.Connection, names: Sequence[str] | None = None
) -> dict[str, SqlTopic]:
    """Return the topics of these names that exist; all topics for None."""
    rows = connection.execute(_TOPICS, (list(names or ()), names is None)).fetchall()
    return {
        name: SqlTopic(id_, TopicSpec(name, len(ids), retention, size), identity, tuple(ids))
        for id_, name, retention, size, identity, ids in rows
    }


def find_topic(connection: psycopg.Connection, name: str) -> SqlTopic:
    """Return one topic. Raises `TopicMissing`."""
    try:
        return find_topics(connection, [name])[name]
    except KeyError:
        raise topic_missing(name) from None


def create_topics(connection: psycopg.Connection, topics: Sequence[TopicSpec]) -> None:
    """Create those that do not exist, all or none; in name order, so that two callers can race.

    When none is missing nothing is written, so that a login without the right can ask too.
    """
    found = find_topics(connection, [spec.name for spec in topics])
    missing = [spec for spec in topics if spec.name not in found]
    with connection.transaction():
        for spec in sorted(missing, key=lambda spec: spec.name):
            row = connection.execute(
                "INSERT INTO journal.topic (name, retention_ms, max_record_bytes)"
                " VALUES (%s, %s, %s) ON CONFLICT (name) DO NOTHING RETURNING id",
                (spec.name, spec.retention_ms, spec.max_record_bytes),
            ).fetchone()
            if row is not None:
                connection.execute(
                    "INSERT INTO journal.partition (topic_id, number)"
                    " SELECT %s, generate_series(0, %s)",
                    (row[0], spec.partitions - 1),
                )


def retain(connection: psycopg.Connection, name: str, retention_ms: int) -> None:
    """Change a topic's retention. Raises `TopicMissing`."""
    topic = find_topic(connection, name)
    connection.execute(
        "UPDATE journal.topic SET retention_ms = %s WHERE id = %s", (retention_ms, topic.id)
    )


def find_partitions(connection: psycopg.Connection, topic: SqlTopic) -> dict[int, SqlPartition]:
    """Return each partition of a topic as it is now. Raises `TopicMissing` when it is gone."""
    rows = connection.execute(
        "SELECT number, id, oldest, next, segment_start FROM journal.partition WHERE topic_id = %s",
        (topic.id,),
    ).fetchall()
    if not rows:
        raise TopicMissing(
            f"topic {topic.name} was removed; look at its identity before reading it again"
        )
    return {
        number: SqlPartition(id_, Bounds(oldest, next_), open_start)
        for number, id_, oldest, next_, open_start in rows
    }


def find_partition(connection: psycopg.Connection, topic: SqlTopic, number: int) -> SqlPartition:
    """Return one partition as it is now. Raises `TopicMissing` when there is no such one."""
    try:
        return find_partitions(connection, topic)[number]
    except KeyError:
        raise TopicMissing(f"topic {topic.name} has no partition {number}") from None


def bounds_of(
    connection: psycopg.Connection, name: str, number: int, *, after_appends: bool
) -> Bounds:
    """Return the bounds of a topic's partition, asked in one exchange. Raises `TopicMissing`.

    With `after_appends` once every transaction that has taken offsets has ended: an appender sends
    its COMMIT when it holds the counter row, so one that is gone and whose COMMIT was sent still
    holds that row, or is done.
    """
    asked = _BOUNDS + (" FOR SHARE OF p" if after_appends else "")
    row = connection.execute(asked, (name, number)).fetchone()
    if row is None:
        find_topic(connection, name)
        raise TopicMissing(f"topic {name} has no partition {number}")
    return Bounds(*row)


_BOUNDS = """
    SELECT p.oldest, p.next FROM journal.topic t JOIN journal.partition p ON p.topic_id = t.id
    WHERE t.name = %s AND p.number = %s
"""
_HAS_SCHEMA = "SELECT to_regproc('journal.begin_segment') IS NOT NULL"


def server_faults(connection: psycopg.Connection) -> list[str]:
    """Return a sentence for each setting under which an acknowledged record could be lost (R3)."""
    faults = [
        f"the journal's PostgreSQL runs with {name} = off and would lose acknowledged records in "
        f"a crash; set {name} = on"
        for (name,) in connection.execute(
            "SELECT name FROM pg_settings WHERE setting = 'off'"
            " AND name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name"
        )
    ]
    row = connection.execute(_HAS_SCHEMA).fetchone()
    if row is not None and not row[0]:
        faults.append(
            "the journal's database has not yet the tables of this release; `packhorse topics "
            "create` makes them"
        )
    row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    if row is not None and row[0]:
        faults.append(
            "the journal's PostgreSQL is a standby, which takes no records and shows them late; "
            "point the journal's URL at the primary"
        )
    return faults
