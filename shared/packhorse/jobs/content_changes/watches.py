"""Who watches which content of a database: without a watch no event of content is stored."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from packhorse.content.node import check_path
from packhorse.errors import Permanent
from packhorse.jobs.names import require_name, require_topic
from packhorse.jobs.store.queues import learn_topics

MOST_WATCHES = 100
MOST_ROOTS = 100
MOST_TYPES = 100


class InvalidWatch(Permanent):
    """A watch that can't be; the text says why."""


@dataclass(frozen=True, slots=True)
class ContentWatch:
    """A lasting interest in the content at and below some paths.

    With `job_topic` each event becomes a job of that topic too, in the same transaction, so that
    one instance reacts to it once, and again until it has succeeded. With `types` what is written
    counts where a node has one of these types, and a subtree where one in it has: the watch gets
    events of its own, which have its name as `watch`.
    """

    name: str
    roots: Sequence[str] = ("/",)
    job_topic: str | None = None
    types: Sequence[str] = ()


def add_watch(connection: Connection, watch: ContentWatch) -> bool:
    """Add a watch, or change the one of that name; what begins after the commit is watched.

    In the caller's transaction, as the bookkeeper. Return whether it is new. Raises `InvalidName`,
    `InvalidPath`, `InvalidWatch`, `TooManyTopics`.
    """
    _check(watch)
    if watch.job_topic is not None:
        learn_topics(connection, [require_topic(watch.job_topic)])
    connection.execute("LOCK TABLE jobs.content_watch IN SHARE ROW EXCLUSIVE MODE")
    [(others, known)] = connection.execute(
        "SELECT count(*) FILTER (WHERE name <> %(name)s), count(*) FILTER (WHERE name = %(name)s) "
        "FROM jobs.content_watch",
        {"name": watch.name},
    ).fetchall()
    if others >= MOST_WATCHES:
        raise InvalidWatch(f"there are {MOST_WATCHES} watches; remove one that nobody needs")
    connection.execute(
        """
        INSERT INTO jobs.content_watch (name, roots, job_topic, types) VALUES (%s, %s, %s, %s)
        ON CONFLICT (name) DO UPDATE SET
            roots = excluded.roots, job_topic = excluded.job_topic, types = excluded.types
        """,
        (watch.name, list(watch.roots), watch.job_topic, list(watch.types)),
    )
    return not known


def _check(watch: ContentWatch) -> None:
    require_name(watch.name, "watch")
    if not 1 <= len(watch.roots) <= MOST_ROOTS:
        raise InvalidWatch(f"a watch has 1 to {MOST_ROOTS} roots, not {len(watch.roots)}")
    for root in watch.roots:
        check_path(root)
    if len(watch.types) > MOST_TYPES:
        raise InvalidWatch(f"a watch has up to {MOST_TYPES} types, not {len(watch.types)}")


def remove_watch(connection: Connection, name: str) -> bool:
    """Remove a watch; return whether there was one. What was stored for it stays."""
    removed = connection.execute("DELETE FROM jobs.content_watch WHERE name = %s", (name,))
    return removed.rowcount > 0


READ_WATCHES = "SELECT name, roots, job_topic, types FROM jobs.content_watch ORDER BY name"


def list_watches(connection: Connection) -> list[ContentWatch]:
    """Return all watches by name."""
    return as_watches(connection.execute(READ_WATCHES))


def as_watches(rows: Iterable[Any]) -> list[ContentWatch]:
    """Return what `READ_WATCHES` gave."""
    return [
        ContentWatch(name, roots, job_topic, tuple(types)) for name, roots, job_topic, types in rows
    ]
