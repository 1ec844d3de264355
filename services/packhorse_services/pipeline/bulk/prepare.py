"""Phase 1: every part of the subtree becomes a stored package, all of them of one snapshot."""

import logging
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from packhorse.errors import PackhorseError
from packhorse_services.pipeline.bulk.export import Meter, Packing, part_table
from packhorse_services.pipeline.bulk.progress import Amount, PhaseProgress
from packhorse_services.pipeline.bulk.snapshot import (
    AuthorSnapshot,
    PlannedPart,
    author_snapshot,
    cut,
)
from packhorse_services.pipeline.bulk.state import BulkState, Export
from packhorse_services.pipeline.engine.spark_errors import translated
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
    with translated("bulk"), author_snapshot(export.database_url) as snapshot:
        parts = _planned_parts(snapshot, export)
        spark = start_spark()
        context = spark.sparkContext
        meter = Meter(context.accumulator(0), context.accumulator(0))
        packing = Packing(export, snapshot.name, meter)
        with _watched(context, export.bulk_id, _checks(snapshot, meter, parts, check)):
            stored = context.parallelize(parts, len(parts)).map(packing).collect()
        state = BulkState(location, export.bulk_id)
        state.note(part_table(stored, export.deep_path, snapshot))
        check()  # what came meanwhile ends the run before a part goes out


def _planned_parts(snapshot: AuthorSnapshot, export: Export) -> list[PlannedPart]:
    sizes = snapshot.sizes(export.deep_path)
    parts = list(cut(sizes, part_nodes=export.part_nodes, part_bytes=export.part_bytes))
    logger.info(
        "the parts of the bulk distribution are planned",
        extra={"parts": len(parts), "nodes": sum(part.nodes for part in parts)},
    )
    return parts


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
    """Take a look now and then while the block runs, and one at its end.

    What one raises ends the block's jobs.
    """
    context.setJobGroup(group, "bulk export", interruptOnCancel=True)
    watch = _Watch(context, group, checks)
    watch.thread.start()
    try:
        yield
    except Exception:
        watch.look_last()  # the job was ended for it, or has met the cause before a look did
        raise
    else:
        watch.look_last()
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

    def look_last(self) -> None:
        """End, and raise what a look has raised; when none has, take one more."""
        self.end()
        if self.reasons:
            raise self.reasons[0] from None
        next(self._checks, None)

    def _look(self) -> None:
        try:
            for _ in self._checks:
                if self._done.wait(_LOOK_S):
                    return
        except PackhorseError as error:
            self.reasons.append(error)
            while not self._done.wait(_LOOK_S):  # a job may just be starting
                self._context.cancelJobGroup(self._group)
