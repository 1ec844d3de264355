"""The tasks of `at`: a subtree of the past is lent, or put back in one transaction."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import psycopg
from pyspark.sql import DataFrame, SparkSession

from packhorse.blobs.open import open_blobs
from packhorse.content import tree
from packhorse.content.node import check_path
from packhorse.content.rows import Row, node_of
from packhorse.db.connect import AWAY, connect
from packhorse.db.engine import Timeouts
from packhorse.db.metadata import IMPORTER
from packhorse.db.roles import act_as
from packhorse.jobs.content_changes.change import ChangeKind, ContentChange
from packhorse.jobs.content_changes.recording import record_watched
from packhorse.jobs.content_changes.watches import list_watches
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse.snapshots.store import all_of
from packhorse_services.pipeline.engine.databases import author_away, first_line, unusable
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.errors import NotThere, TaskFailed, TaskRefused
from packhorse_services.pipeline.history.content import Choice, content_at
from packhorse_services.pipeline.history.target import HistoryTarget, target
from packhorse_services.pipeline.pieces import kept
from packhorse_services.pipeline.storage.location import Location


@dataclass(frozen=True, slots=True)
class Point:
    """Which subtree, and when: at an offset, or at a time of the journal's clock (R28)."""

    path: str
    offset: int | None = None
    time: datetime | None = None
    agents: tuple[str, ...] = ()
    leave_out: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ContentAt:
    """What was there."""

    nodes: DataFrame
    """As `NODES`, in path order, with `offset` and `package_id` of what put each node there."""
    target: HistoryTarget
    base: ContentSnapshot | None
    """What the fold went on from: of its nodes `offset` is its own, and there is no package id."""


@contextmanager
def subtree_at(
    spark: SparkSession, location: Location, package_topic: str, blobs_url: str, point: Point
) -> Iterator[ContentAt]:
    """Lend the subtree as it was.

    A partition has about `PARTITION_CHARACTERS` on average, so that one may be brought to the
    driver after the other. Only packages about the subtree are unpacked. Raises `InvalidPath`,
    `TaskRefused` when the archive does not hold it, and what `translated` raises.
    """
    path = check_path(point.path)
    with translated("at"):
        with closing(open_blobs(blobs_url)) as blobs:
            snapshots = list(all_of(blobs))
        found = target(
            location,
            package_topic,
            agents=point.agents,
            offset=point.offset,
            time=point.time,
            snapshots=snapshots,
        )
        choice = Choice(leave_out=point.leave_out, within=path)
        with (
            content_at(spark, location, blobs_url, found, choice) as (content, begin),
            content.together() as every,
            kept(every.ordered()[0]) as nodes,
        ):
            yield ContentAt(nodes, found, begin.base)


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
