"""Archived packages to events: what each does to which path, for Spark to sort and join.

An event of a write has no texts: what is decided needs paths and numbers alone.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse.blobs.open import open_blobs
from packhorse.content.node import ROOT
from packhorse_services.pipeline.history.decoding import WRITE, PathEvent, events_of
from packhorse_services.pipeline.history.fold import hash_of
from packhorse_services.pipeline.history.packages import OffsetShare, Packages, agent_of
from packhorse_services.pipeline.pieces import batches, scattered
from packhorse_services.pipeline.storage import tables

EVENTS = t.StructType(
    [
        t.StructField("offset", t.LongType(), False),
        t.StructField("kind", t.StringType(), False),
        t.StructField("path", t.StringType(), False),
        t.StructField("range_from", t.StringType(), False),
        t.StructField("range_to", t.StringType(), False),
        t.StructField("package_id", t.StringType(), False),
        t.StructField("position", t.IntegerType(), False),
        t.StructField("size", t.LongType(), False),
        t.StructField("hash", t.LongType(), False),
        t.StructField("publisher_agent", t.StringType(), False),
    ]
)
"""`kind` is write, clear, or unreadable: then `path` says why, and `fold` refuses to go on.

A clear removes `path` and all below it, or of that only what is >= `range_from` and <
`range_to` by bytes (empty: no bound). `position` orders the writes of one package; `size` is
how many characters the node has, `hash` as `hash_of` has it. `publisher_agent` is whose package
it was.
"""

_BATCH_ROWS = 4_000
_MOST_TASKS = 5_000

_ARROW = to_arrow_schema(EVENTS, timezone="UTC")


def package_events(spark: SparkSession, packages: Packages, within: str = ROOT) -> DataFrame:
    """Return what the packages do, as `EVENTS`; clears of a package count before its writes.

    Bodies that went by reference are streamed from the archive's. A package that can't be read
    becomes an event of kind unreadable. Only changes of `within` and below it are reported;
    packages about other paths are passed over without a look at their bodies.
    """

    def decode(shares: Iterable[OffsetShare]) -> Iterator[pa.RecordBatch]:
        yield from batches(_rows(packages, shares, within), _ARROW, _BATCH_ROWS)

    return scattered(spark, packages.shares(), decode, EVENTS, most=_MOST_TASKS)


def _rows(
    packages: Packages, shares: Iterable[OffsetShare], within: str
) -> Iterator[tuple[object, ...]]:
    with closing(open_blobs(packages.location.blobs_url(tables.BODIES))) as bodies:
        for package in chain.from_iterable(map(packages.read, shares)):
            agent = agent_of(package.headers)
            for event in events_of(*package, bodies, within):
                yield _row(event, agent)


def _row(event: PathEvent, agent: str) -> tuple[object, ...]:
    """Return it without its texts, which are freed at once."""
    texts = (event.type or "", event.properties or "", event.binaries or "")
    measured = (event.size, hash_of(event.path, *texts)) if event.kind == WRITE else (0, 0)
    return (*event[:5], event.package_id, event.position, *measured, agent)
