"""A fold that goes on from a snapshot: what events touch is decided, the rest of it stays (R8).

The rest is never a frame unless somebody wants its rows: it is read from the lists of the parts'
nodes, chosen by path and summed in the task that reads it (ADR 0131).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.node import ancestors_of
from packhorse.snapshots.snapshot import ContentSnapshot, Part
from packhorse_services.pipeline.history.fold import WON, clears_of, decided, writes_of
from packhorse_services.pipeline.history.node_lists import listed, made_rows
from packhorse_services.pipeline.pieces import cores, kept, scattered

Wanted = Callable[[pa.Array], pa.Array]
"""Which of some paths are wanted, as a mask."""
OfBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_LISTED = "path string, size bigint, hash bigint, position int"
_BATCH_ROWS = 20_000
_TASKS_OF_A_CORE = 4
_FEW_WRITES = 200_000
"""Up to so many writes are told to every task that reads a base."""


@dataclass(frozen=True, slots=True)
class BaseNodes:
    """Nodes of a snapshot, read from the lists of its parts, a part at a time."""

    spark: SparkSession
    snapshot: ContentSnapshot
    blobs_url: str
    offset: int
    """Where the fold has put them."""
    wanted: tuple[Wanted, ...] = ()

    def where(self, wanted: Wanted) -> "BaseNodes":
        """Return those of them at paths that are wanted."""
        return replace(self, wanted=(*self.wanted, wanted))

    def places(self) -> DataFrame:
        """Return them as `fold` does: `position` says which part has a node."""
        own = {"offset": f.lit(self.offset).cast("long"), "package_id": f.lit("")}
        return self.mapped(iter, _LISTED).withColumns(own).select(*WON)

    def mapped(self, mapping: OfBatches, schema: StructType | str) -> DataFrame:
        """Return what `mapping` makes of them in the tasks that read them.

        Its batches have path, size, hash and position (which part has it), each of one part, in
        path order.
        """
        parts, blobs_url, wanted = self.snapshot.parts, self.blobs_url, self.wanted

        def read(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
            with closing(open_blobs(blobs_url)) as blobs:
                rows = (_rows_of(parts[number], number, blobs) for number in numbers)
                chosen = (chosen_by(wanted, batch) for some in rows for batch in some)
                yield from mapping(batch for batch in chosen if batch.num_rows)

        return scattered(
            self.spark, range(len(parts)), read, schema, most=cores(self.spark) * _TASKS_OF_A_CORE
        )


def _rows_of(part: Part, number: int, blobs: BlobStore) -> Iterator[pa.RecordBatch]:
    rows = listed(part, blobs)
    rows = made_rows(part, blobs) if rows is None else rows
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        position = pa.array([number] * batch.num_rows, pa.int32())
        yield batch.append_column("position", position)


def chosen_by(wanted: Iterable[Wanted], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch at paths that are wanted by all."""
    for own in wanted:
        batch = batch.filter(own(batch.column("path")))
    return batch


def by_path(wanted: Callable[[str], bool]) -> Wanted:
    """Return the same, asked for path by path."""
    return lambda paths: pa.array([wanted(path) for path in paths.to_pylist()], pa.bool_())


def runs_of(starts: Sequence[str], paths: pa.Array) -> Iterator[tuple[int, int, int]]:
    """Yield how many starts are not behind paths, and from where to where these paths stand.

    Both are in path order.
    """
    first = 0
    while first < len(paths):
        begun = bisect_right(starts, paths[first].as_py())
        end = len(paths)
        if begun < len(starts):
            end = bisect_left(paths, starts[begun], first, key=lambda one: one.as_py())
        yield begun, first, end
        first = end


class FoldedOnto(NamedTuple):
    """What `fold_onto` has let win: what is `decided`, and the `rest` of the base."""

    decided: DataFrame
    touched: DataFrame
    """The nodes of the base whose paths are decided again: each may be another one now, or gone."""
    rest: BaseNodes | None
    """The other ones; None: there are none."""


@contextmanager
def fold_onto(events: DataFrame, base: BaseNodes) -> Iterator[FoldedOnto]:
    """Lend what `fold` returns, of a base and the events above its offset.

    Raises as `fold` does.
    """
    events = events.where(f.col("offset") > base.offset)
    clears, many = clears_of(events)
    written = writes_of(events)
    paths = _few_paths(written) if many is None else None
    if paths is None:
        all_of_it = base.places()
        every = all_of_it.unionByName(written)
        yield FoldedOnto(decided(events, every, clears, many), all_of_it, None)
        return
    touches = touching(paths, clears.edges())
    rest = base.where(lambda some: pc.invert(touches(some)))
    with kept(base.where(touches).places()) as touched:
        yield FoldedOnto(decided(events, touched.unionByName(written), clears), touched, rest)


def unchanged(base: BaseNodes) -> AbstractContextManager[FoldedOnto]:
    """Lend the same where there are no events; Spark plans next to nothing for it."""
    none = base.spark.createDataFrame([], base.places().schema)
    return nullcontext(FoldedOnto(none, none, base))


def _few_paths(written: DataFrame) -> pa.Array | None:
    """Return the paths that are written, and those above them; None when they are many."""
    rows = written.select("path").limit(_FEW_WRITES + 1).collect()
    if len(rows) > _FEW_WRITES:
        return None
    paths = {row.path for row in rows}
    return pa.array(paths.union(*map(ancestors_of, paths)), pa.string())


def touching(paths: pa.Array, edges: list[str]) -> Wanted:
    """Return which paths, in path order, are among `paths` or behind an odd number of edges."""

    def touches(some: pa.Array) -> pa.Array:
        runs = (
            pa.repeat(begun % 2 == 1, end - first) for begun, first, end in runs_of(edges, some)
        )
        cleared = pa.concat_arrays([pa.array([], pa.bool_()), *runs])
        return pc.or_(pc.is_in(some, value_set=paths), cleared)

    return touches
