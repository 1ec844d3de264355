"""The nodes that a fold has let win: their texts, read from the packages and the base again."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.tree import FOLDER
from packhorse.snapshots.parts import read_part
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.decoding import WRITE, binaries_text, events_of
from packhorse_services.pipeline.history.fold import MERE_FOLDER
from packhorse_services.pipeline.history.packages import Packages
from packhorse_services.pipeline.pieces import batches
from packhorse_services.pipeline.storage import schemas, tables

NODES = t.StructType(
    [
        t.StructField("partition", t.IntegerType(), False),
        *schemas.NODES.fields,
        t.StructField("offset", t.LongType(), False),
        t.StructField("package_id", t.StringType(), False),
    ]
)
"""What `fetched` returns: the columns of `schemas.NODES`, and which package put the node there."""

_CHANGED = "the archive has changed meanwhile; run the task again"
_TASK_CHARACTERS = 64 * 1024**2
_MOST_TASKS = 5_000
_BATCH_ROWS = 2_000
_BATCH_CHARACTERS = 8 * 1024**2
_EMPTY = "{}"

_ARROW = to_arrow_schema(NODES, timezone="UTC")


class _Place(NamedTuple):
    path: str
    offset: int
    position: int
    package_id: str
    partition: int


_Node = tuple[int, str, str, str, str, int, str]
_Written = tuple[int, str, str, str, str]
"""Position, path, type, properties, binaries."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Where the nodes' texts are: in packages, and in the parts of a snapshot."""

    packages: Packages
    blobs_url: str
    base: ContentSnapshot | None = None
    at_a_time: int = 20_000
    """Places that a task takes together, to read a row group once for all; it may hold two lots."""
    base_offset: int | None = None
    """Where the fold put the base's nodes; without it, at the base's own offset."""

    @property
    def based_at(self) -> int:
        """Where the fold has put the base's nodes; below every offset when there is no base."""
        if self.base is None:
            return -1
        return self.base.offset if self.base_offset is None else self.base_offset

    def fetched(self, winners: DataFrame, characters: int) -> DataFrame:
        """Return the nodes of `winners` (and their `partition`): `NODES`, in no order.

        `characters` is how many there are about. A task takes places of neighbouring packages, so
        that a row group of the archive is read once or twice.
        """
        tasks = min(_MOST_TASKS, 1 + characters // _TASK_CHARACTERS)
        places = winners.select(*_Place._fields)
        order = ("offset", "position", "path")
        grouped = places.repartitionByRange(tasks, *order).sortWithinPartitions(*order)
        return grouped.mapInArrow(self._read, NODES)

    def _read(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for one in given for row in zip(*one.to_pydict().values(), strict=True))
        places = map(_Place._make, rows)
        with ExitStack() as stack:
            bodies = open_blobs(self.packages.location.blobs_url(tables.BODIES))
            stack.enter_context(closing(bodies))
            blobs = bodies
            if self.base is not None:
                blobs = stack.enter_context(closing(open_blobs(self.blobs_url)))
            nodes = self._nodes(places, bodies, blobs)
            yield from batches(
                nodes, _ARROW, _BATCH_ROWS, size=_characters, most_size=_BATCH_CHARACTERS
            )

    def _nodes(
        self, places: Iterator[_Place], bodies: BlobStore, blobs: BlobStore
    ) -> Iterator[_Node]:
        """Read what has many places once, in their order, and of all others many at a time."""
        waiting: list[_Place] = []
        for _, same in itertools.groupby(places, self._source):
            some = list(itertools.islice(same, self.at_a_time))
            if len(some) == self.at_a_time:
                every = itertools.chain(some, same)  # noqa: B031 - what is left of it
                yield from self._of_one(every, bodies, blobs)
                continue
            waiting += some
            if len(waiting) >= self.at_a_time:
                yield from self._of_several(waiting, bodies, blobs)
                waiting = []
        yield from self._of_several(waiting, bodies, blobs)

    def _source(self, place: _Place) -> tuple[int, int]:
        """Return what names the package, or the base's part, or the folders of a package."""
        if place.position == MERE_FOLDER or self._is_based(place):
            return place.offset, place.position
        return place.offset, 0

    def _is_based(self, place: _Place) -> bool:
        return place.offset <= self.based_at

    def _of_one(
        self, places: Iterator[_Place], bodies: BlobStore, blobs: BlobStore
    ) -> Iterator[_Node]:
        """Yield the nodes of one source, which are too many to hold their places."""
        place = next(places, None)
        if place is None or place.position == MERE_FOLDER:
            folders = places if place is None else itertools.chain([place], places)
            yield from (_node(one, FOLDER, _EMPTY, _EMPTY) for one in folders)
            return
        for position, path, *texts in self._written(place, bodies, blobs):
            if place is None:
                return
            if (position, path) == (place.position, place.path):
                yield _node(place, *texts)
                place = next(places, None)
        if place is not None:
            raise TaskRefused(_CHANGED)

    def _written(self, place: _Place, bodies: BlobStore, blobs: BlobStore) -> Iterator[_Written]:
        """Yield all that is written in the place's package or part, in its order."""
        if self.base is not None and self._is_based(place):
            for node in read_part(self.base.parts[place.position], blobs):
                texts = (node.type, node.properties, binaries_text(node.binaries))
                yield (place.position, node.path, *texts)
            return
        for package in self.packages.at([place.offset]):
            for event in events_of(*package, bodies):
                if event.kind == WRITE:
                    texts = (event.type or "", event.properties or "", event.binaries or "")
                    yield (event.position, event.path, *texts)

    def _of_several(
        self, places: list[_Place], bodies: BlobStore, blobs: BlobStore
    ) -> Iterator[_Node]:
        based: defaultdict[int, dict[str, _Place]] = defaultdict(dict)
        written: defaultdict[int, dict[int, _Place]] = defaultdict(dict)
        for place in places:
            if place.position == MERE_FOLDER:
                yield _node(place, FOLDER, _EMPTY, _EMPTY)
            elif self._is_based(place):
                based[place.position][place.path] = place
            else:
                written[place.offset][place.position] = place
        for number, wanted in based.items():
            yield from self._of_part(number, wanted, blobs)
        if written:
            yield from self._of_packages(written, bodies)

    def _of_part(
        self, number: int, wanted: Mapping[str, _Place], blobs: BlobStore
    ) -> Iterator[_Node]:
        parts = self.base.parts if self.base else ()
        for node in read_part(parts[number], blobs):
            if (place := wanted.get(node.path)) is not None:
                yield _node(place, node.type, node.properties, binaries_text(node.binaries))

    def _of_packages(
        self, written: Mapping[int, dict[int, _Place]], bodies: BlobStore
    ) -> Iterator[_Node]:
        missing = sum(map(len, written.values()))
        for package in self.packages.at(written):
            wanted = written[package.offset]
            for event in events_of(*package, bodies):
                if event.kind == WRITE and event.position in wanted:
                    missing -= 1
                    texts = (event.type or "", event.properties or "", event.binaries or "")
                    yield _node(wanted[event.position], *texts)
        if missing:
            raise TaskRefused(_CHANGED)


def characters_of(winners: DataFrame) -> int:
    """Return how many characters the nodes of `winners` have."""
    return int(winners.agg(f.sum("size").alias("size")).collect()[0].size or 0)


def _node(place: _Place, *texts: str) -> _Node:
    kind, properties, binaries = texts
    reported = (place.offset, place.package_id)
    return (place.partition, place.path, kind, properties, binaries, *reported)


def _characters(node: _Node) -> int:
    return len(node[1]) + len(node[3]) + len(node[4])
