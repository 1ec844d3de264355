"""The queues as they are stored: read, declared, changed; and the queue of every topic.

All functions are called in a transaction as the bookkeeper.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, LiteralString
from zlib import crc32

import psycopg
from psycopg import Connection, Cursor
from psycopg.rows import dict_row

from packhorse.jobs.channels import JOBS
from packhorse.jobs.queue import (
    MAIN,
    MOST_TOPICS,
    InvalidQueue,
    JobQueue,
    Layout,
    QueueChanged,
    QueueConfiguration,
    QueuesBusy,
    QueueType,
    TooManyTopics,
    UnknownQueue,
    choose_queue,
)

LAYOUT_LOCK = 0x70686A71
"""Advisory lock: shared by who claims or learns a topic, exclusive to who changes queues."""
TOPIC_LOCK, _TOPIC_LOCKS = 0x70687470, 4096
"""Advisory locks: shared by who gives jobs for a topic, exclusive to who forgets it."""
_PATIENCE = "3s"
_REPLACE: LiteralString = """
DO UPDATE SET patterns = excluded.patterns, ranking = excluded.ranking, type = excluded.type,
    max_parallel = excluded.max_parallel, max_retries = excluded.max_retries,
    retry_delay_s = excluded.retry_delay_s, max_retry_delay_s = excluded.max_retry_delay_s,
    timeout_s = excluded.timeout_s, keep_history = excluded.keep_history,
    prefer_creator = excluded.prefer_creator, version = q.version + 1,
    changed_at = clock_timestamp()
"""

_FIELDS = tuple(field.name for field in fields(QueueConfiguration))
_COLUMNS = ", ".join((*_FIELDS, "suspended", "version", "changed_at"))


def read_layout(connection: Connection) -> Layout:
    """Return all queues and topics."""
    topics = connection.execute("SELECT topic, queue FROM jobs.topic ORDER BY topic")
    return Layout({queue.name: queue for queue in read_queues(connection)}, dict(topics.fetchall()))


def read_queues(connection: Connection) -> list[JobQueue]:
    """Return all queues, by name."""
    return _read(connection, "ORDER BY name", ())


def get_queue(connection: Connection, name: str) -> JobQueue:
    """Return a queue. Raises `UnknownQueue`."""
    found = _read(connection, "WHERE name = %s", (name,))
    if not found:
        raise UnknownQueue(f"there is no queue {name!r}; GET /job-queues lists them")
    return found[0]


def _read(
    connection: Connection, condition: LiteralString, given: tuple[str, ...]
) -> list[JobQueue]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(f"SELECT {_COLUMNS} FROM jobs.queue {condition}", given)  # noqa: S608
        return [_queue_of(row) for row in cursor]


def _queue_of(row: dict[str, Any]) -> JobQueue:
    configuration = {name: row[name] for name in _FIELDS}
    configuration |= {"patterns": tuple(row["patterns"]), "type": QueueType(row["type"])}
    return JobQueue(
        QueueConfiguration(**configuration), row["suspended"], row["version"], row["changed_at"]
    )


def declare_queue(connection: Connection, configuration: QueueConfiguration) -> bool:
    """Make a queue unless there is one of that name, which is left as it is; return whether made.

    Raises `QueuesBusy`.
    """
    if _read(connection, "WHERE name = %s", (configuration.name,)):
        return False
    _lock(connection)
    made = _write(connection, configuration, "DO NOTHING")
    if made:
        _assign(connection)
    return made


def put_queue(
    connection: Connection, configuration: QueueConfiguration, version: int | None = None
) -> JobQueue:
    """Make or change a queue; the jobs of all topics are moved with it, at its commit.

    With a version only that one is changed (0: there must be none yet). Raises `QueueChanged`,
    `InvalidQueue` when `main` would not take all topics, `QueuesBusy`.
    """
    if configuration.name == MAIN and "**" not in configuration.patterns:
        raise InvalidQueue("the queue main takes all topics that no other takes: pattern '**'")
    _lock(connection)
    found = _read(connection, "WHERE name = %s", (configuration.name,))
    _compare(configuration.name, found[0].version if found else 0, version)
    _write(connection, configuration, _REPLACE)
    _assign(connection)
    return get_queue(connection, configuration.name)


def remove_queue(connection: Connection, name: str, version: int | None = None) -> None:
    """Remove a queue; its jobs go to the queues that take their topics now.

    Raises `UnknownQueue`, `QueueChanged`, `QueuesBusy`, `InvalidQueue` for `main`.
    """
    if name == MAIN:
        raise InvalidQueue("the queue main can't be removed: it takes what no other takes")
    _lock(connection)
    _compare(name, get_queue(connection, name).version, version)
    _assign(connection, without=name)
    connection.execute("DELETE FROM jobs.queue WHERE name = %s", (name,))


def suspend_queue(
    connection: Connection, name: str, *, suspended: bool, version: int | None = None
) -> JobQueue:
    """Suspend or resume a queue, for all instances, until it is changed again.

    Raises `UnknownQueue`, `QueueChanged`.
    """
    changed = connection.execute(
        """
        UPDATE jobs.queue SET suspended = %s, version = version + 1,
            changed_at = clock_timestamp()
        WHERE name = %s AND version = coalesce(%s, version) AND suspended <> %s
        """,
        (suspended, name, version, suspended),
    )
    queue = get_queue(connection, name)
    if changed.rowcount == 0:
        _compare(name, queue.version, version)
    elif not suspended:
        notify_workers(connection)
    return queue


def learn_topics(connection: Connection, topics: Iterable[str]) -> dict[str, str]:
    """Return the queues of topics, choosing one for those that are new. Raises `TooManyTopics`.

    Nobody forgets one of them before the transaction ends (`ledger.topics`).
    """
    wanted = sorted(set(topics))
    with connection.pipeline():  # one round trip; the second statement sees what the first awaited
        connection.execute(
            "SELECT pg_advisory_xact_lock_shared(%s, number) "
            "FROM unnest(%s::integer[]) AS l (number)",
            (TOPIC_LOCK, locks_of(wanted)),
        )
        found = _find_queues(connection, wanted)
    known: dict[str, str] = dict(found.fetchall())
    new = [topic for topic in wanted if topic not in known]
    if new:
        share_layout(connection)
        _insert_topics(connection, new)
        known |= dict(_find_queues(connection, new).fetchall())
    return known


def locks_of(topics: Iterable[str]) -> list[int]:
    """Return which of the locks of topics are theirs, in the order in which all take them.

    They are few: a transaction that gives thousands of topics does not use up the server's locks.
    """
    return sorted({crc32(topic.encode()) % _TOPIC_LOCKS for topic in topics})


def share_layout(connection: Connection) -> None:
    """Keep all queues and topics as they are until the transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (LAYOUT_LOCK,))


def notify_workers(connection: Connection) -> None:
    """Notify all workers, with the commit, that there is something to do."""
    connection.execute("SELECT pg_notify(%s, '')", (JOBS,))


def _find_queues(connection: Connection, topics: Sequence[str]) -> Cursor:
    return connection.execute(
        "SELECT topic, queue FROM jobs.topic WHERE topic = ANY(%s)", (list(topics),)
    )


def _insert_topics(connection: Connection, topics: Sequence[str]) -> None:
    [(count,)] = connection.execute("SELECT count(*) FROM jobs.topic").fetchall()
    if count + len(topics) > MOST_TOPICS:
        raise TooManyTopics(
            f"jobs were given for {count} topics, and may be for {MOST_TOPICS}; a topic names a "
            "kind of work, what differs from job to job belongs into the properties (what has no "
            "job, no history, and was not used for a day is forgotten every hour)"
        )
    configurations = [queue.configuration for queue in read_queues(connection)]
    connection.execute(
        "INSERT INTO jobs.topic (topic, queue) SELECT * FROM unnest(%s::text[], %s::text[]) "
        "ON CONFLICT DO NOTHING",
        (list(topics), [choose_queue(topic, configurations) for topic in topics]),
    )


def _assign(connection: Connection, without: str = "") -> None:
    """Give every topic the queue that takes it now."""
    layout = read_layout(connection)
    configurations = [q.configuration for q in layout.queues.values() if q.name != without]
    chosen = {topic: choose_queue(topic, configurations) for topic in layout.topics}
    moved = [topic for topic, queue in chosen.items() if queue != layout.topics[topic]]
    connection.execute(
        "UPDATE jobs.topic t SET queue = m.queue FROM unnest(%s::text[], %s::text[]) "
        "AS m (topic, queue) WHERE t.topic = m.topic",
        (moved, [chosen[topic] for topic in moved]),
    )
    notify_workers(connection)


def _write(
    connection: Connection, configuration: QueueConfiguration, conflict: LiteralString
) -> bool:
    values = {name: getattr(configuration, name) for name in _FIELDS}
    values |= {"patterns": list(configuration.patterns), "type": configuration.type.value}
    places = ", ".join(f"%({name})s" for name in _FIELDS)
    written = connection.execute(
        f"INSERT INTO jobs.queue AS q ({', '.join(_FIELDS)}) VALUES ({places}) "  # noqa: S608
        f"ON CONFLICT (name) {conflict}",
        values,
    )
    return written.rowcount == 1


def _lock(connection: Connection) -> None:
    """Change queues alone: no claim, and no new topic, is under way."""
    connection.execute("SELECT set_config('lock_timeout', %s, true)", (_PATIENCE,))
    try:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LAYOUT_LOCK,))
    except psycopg.errors.LockNotAvailable as error:
        raise QueuesBusy("jobs for new topics are being given; try again") from error


def _compare(name: str, present: int, wanted: int | None) -> None:
    if wanted is not None and wanted != present:
        raise QueueChanged(f"the queue {name} has version {present} now, not {wanted}")
