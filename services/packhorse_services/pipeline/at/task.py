"""The task `at`: the nodes of a subtree at a point of the history, in path order."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from packhorse.blobs.open import open_blobs
from packhorse.content.node import check_path
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse.snapshots.store import all_of
from packhorse_services.pipeline.engine.kept import kept
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.history.content import Choice, content_at
from packhorse_services.pipeline.history.target import HistoryTarget, target
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
