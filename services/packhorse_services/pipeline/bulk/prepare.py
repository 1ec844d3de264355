"""Phase 1: every part of the subtree becomes a stored package, all of them of one snapshot."""

import logging
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from packhorse.errors import PackhorseError
from packhorse_services.pipeline.bulk.export import (
    BULK_PARTS,
    Meter,
    part_rows,
    read_nodes,
    store_packages,
)
from packhorse_services.pipeline.bulk.jdbc import jdbc_database
from packhorse_services.pipeline.bulk.progress import Amount, PhaseProgress
from packhorse_services.pipeline.bulk.snapshot import (
    AuthorSnapshot,
    PlannedPart,
    author_snapshot,
    cut,
)
from packhorse_services.pipeline.bulk.state import Export
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.columns import described
from packhorse_services.pipeline.storage.location import Location

logger = logging.getLogger(__name__)

_LOOK_S = 1.0


def prepare(
    start_spark: Callable[[], SparkSession],
    location: Location,
    export: Export,
    check: Callable[[], None],
) -> None:
    """Store the packages, then note all of them in one commit.

    Until that commit nothing has happened: what was stored belongs to nobody, and the cleanup
    removes it. Spark is started once there is something to do. `check` is called now and then;
    what it raises ends the work.

    Raises `PathMissing`, `TaskRefused`, `TaskFailed`, `TablesUnusable`, and what `check` raises.
    """
    database = jdbc_database(export.database_url)
    with translated("bulk"), author_snapshot(export.database_url) as snapshot:
        parts = _planned_parts(snapshot, export)
        spark = start_spark()
        context = spark.sparkContext
        meter = Meter(context.accumulator(0), context.accumulator(0))
        ranges = [part.within(export.deep_path) for part in parts]
        nodes = read_nodes(spark, database, snapshot.name, ranges)
        packed = store_packages(nodes, export.deep_path, parts, export.blobs_url, meter)
        rows = part_rows(packed, export.deep_path, parts, snapshot)
        with _watched(context, export.bulk_id, _checks(snapshot, meter, parts, check)):
            _commit(rows, location.spark_path(tables.bulk_parts(export.bulk_id)))


def _planned_parts(snapshot: AuthorSnapshot, export: Export) -> list[PlannedPart]:
    sizes = snapshot.sizes(export.deep_path)
    parts = list(cut(sizes, part_nodes=export.part_nodes, part_bytes=export.part_bytes))
    logger.info(
        "the parts of the bulk distribution are planned",
        extra={"parts": len(parts), "nodes": sum(part.nodes for part in parts)},
    )
    return parts


def _commit(rows: DataFrame, table: str) -> None:
    """Write the one file of the table: a path is read in the order of its parts."""
    ordered = described(rows, BULK_PARTS, "bulk").repartition(1).sortWithinPartitions("part")
    ordered.write.format("delta").mode("errorifexists").save(table)


def _checks(
    snapshot: AuthorSnapshot, meter: Meter, parts: list[PlannedPart], check: Callable[[], None]
) -> Generator[None, None, None]:
    """Each step reports how far it is, keeps the snapshot, and raises what ends the work."""
    total = Amount(len(parts), sum(part.nodes for part in parts))
    with PhaseProgress("export", total) as progress:
        while True:
            progress.reached(Amount(meter.parts.value, meter.nodes.value))
            snapshot.keep()
            check()
            yield


@contextmanager
def _watched(
    context: SparkContext, group: str, checks: Generator[None, None, None]
) -> Iterator[None]:
    """Take a look now and then while the block runs; what one raises ends the block's jobs."""
    context.setJobGroup(group, "bulk export", interruptOnCancel=True)
    watch = _Watch(context, group, checks)
    watch.thread.start()
    try:
        yield
    except Exception:
        watch.end()
        if not watch.reasons:  # the job may have met the cause before a look did
            next(checks, None)
            raise
        raise watch.reasons[0] from None  # the job was ended for it
    finally:
        watch.end()
        checks.close()


class _Watch:
    """Looks until its end; when a look raises, it ends the jobs of the group."""

    def __init__(
        self, context: SparkContext, group: str, checks: Generator[None, None, None]
    ) -> None:
        self._context, self._group, self._checks = context, group, checks
        self._done = threading.Event()
        self.reasons: list[PackhorseError] = []
        self.thread = threading.Thread(target=self._look, name="bulk-watch", daemon=True)

    def end(self) -> None:
        self._done.set()
        self.thread.join()

    def _look(self) -> None:
        try:
            for _ in self._checks:
                if self._done.wait(_LOOK_S):
                    return
        except PackhorseError as error:
            self.reasons.append(error)
            while not self._done.wait(_LOOK_S):  # a job may just be starting
                self._context.cancelJobGroup(self._group)
