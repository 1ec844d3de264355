"""A subtree of the past back into the author's repository, in one transaction."""

from collections.abc import Iterator
from typing import cast

import psycopg
from pyspark.sql import DataFrame

from packhorse.content import tree
from packhorse.content.rows import Row, node_of
from packhorse.db.connect import AWAY, connect
from packhorse.db.engine import Timeouts
from packhorse.db.metadata import IMPORTER
from packhorse.db.roles import act_as
from packhorse.jobs.content_changes.change import ChangeKind, ContentChange
from packhorse.jobs.content_changes.recording import record_watched
from packhorse.jobs.content_changes.watches import list_watches
from packhorse_services.pipeline.engine.databases import author_away, first_line, unusable
from packhorse_services.pipeline.errors import NotThere, TaskFailed, TaskRefused

_UNHURRIED = Timeouts(statement_ms=600_000, lock_ms=60_000, idle_in_transaction_ms=600_000)
"""Spark lends the nodes one partition after the other; the transaction waits for it."""

OTHERWISE = "use --force to restore the nodes without them"
"""What to do without binaries that can't be put back."""


def restore(content: DataFrame, path: str, database_url: str) -> int:
    """Make the author's subtree at `path` exactly `content`, and return how many nodes it has.

    One transaction: other writers see all of it or nothing. Raises `NotThere` when `content` is
    empty, `TaskFailed` when the database can't be connected to, and `psycopg.Error`, for which
    see `refused`, when something happens later. `content` is read twice, first before anything is
    locked: kept, it is then there.
    """
    columns = content.select("path", "type", "properties", "binaries")
    count = columns.count()
    if not count:
        raise NotThere(f"nothing was at {path!r} then; delete what is there instead")
    with (
        _connected(database_url) as connection,
        connection.transaction(),
    ):
        connection.execute(tree.SHAPE_CHANGED)
        act_as(connection, IMPORTER)
        rows = cast(Iterator[Row], columns.toLocalIterator(prefetchPartitions=False))
        tree.replace(connection, path, map(node_of, rows))
        done = ContentChange(ChangeKind.CHANGED, (), [path])
        record_watched(connection, list_watches(connection), [done])
    return count


def require_author(database_url: str) -> None:
    """Raise what says that nothing can be put back into this database, if so.

    What was there then takes long to find, and this is to be known before: `TaskFailed` when the
    database is away, `TaskRefused` when it is none of ours, or its user lacks the right.
    """
    with _connected(database_url) as connection:
        try:
            act_as(connection, IMPORTER)
            tree.exists(connection, "/")
        except psycopg.Error as error:
            raise unusable(author_away(error), error) from error


def _connected(database_url: str) -> psycopg.Connection:
    try:
        return connect(database_url, "packhorse-pipeline", timeouts=_UNHURRIED)
    except psycopg.OperationalError as error:
        raise unusable(author_away(error), error) from error


def refused(error: psycopg.Error) -> TaskFailed | TaskRefused:
    """Return what to say when the author's database refuses, where all is as it was, or fails.

    Whether a connection that is lost while it commits has committed is not known (R26).
    """
    said = first_line(error) or type(error).__name__
    if isinstance(error, AWAY):
        return TaskFailed(
            f"the author's database failed: {said}; it is not known whether the subtree was "
            "restored; look at it, or run it again"
        )
    return TaskRefused(f"the author's database refuses: {said}; nothing was changed")
