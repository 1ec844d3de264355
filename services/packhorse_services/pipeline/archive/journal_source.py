"""The journal's places as Spark's source: which records there are, and who is to read them.

Offsets are `{topic: {partition: next}}`. A row names a record, and does not have it: whoever
writes it reads it himself (ADR 0033).
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse_services.pipeline.archive import places as at
from packhorse_services.pipeline.archive.places import Places, Range
from packhorse_services.pipeline.errors import HistoryGap, TaskRefused
from packhorse_services.pipeline.schemas import BRONZE

NAME = "packhorse_journal"
URL = "secret_journal_url"
"""Spark blackens options whose names say secret: the URL holds a password."""
IDENTITIES = "identities"
STARTING = "starting"
MAX_OFFSETS = "max_offsets"
MIN_PARTITIONS = "min_partitions"

PLACES = StructType([BRONZE[name] for name in ("topic", "partition", "offset")])
_COLUMNS = to_arrow_schema(PLACES)
_NAMED_AT_ONCE = 2_000

_LEAST_ROWS = 2_000
"""Fewer are not worth a task of their own."""


class JournalSource(DataSource):
    """A stream with the columns `PLACES`: a row for each record, in ranges of offsets.

    Options: the journal's URL, the topics and their identities, where to start (else at the
    oldest offsets), how many offsets a batch takes at most, into how many tasks a batch is cut.
    """

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns."""
        return PLACES

    def streamReader(self, schema: StructType) -> "JournalStream":  # noqa: N802, ARG002 - Spark's
        """Return the reader of a stream."""
        return JournalStream(_Plan(self.options))


class _Plan:
    """The options, and what is asked of the journal on the driver."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.url = options[URL]
        self.identities: dict[str, str] = json.loads(options[IDENTITIES])
        self.tasks = int(options.get(MIN_PARTITIONS, "1"))
        limit = options.get(MAX_OFFSETS)
        self.limit = int(limit) if limit else None
        starting = options.get(STARTING)
        self.starting = at.from_document(json.loads(starting)) if starting else None

    def extent(self) -> at.Extent:
        """Return what the journal holds. Raises `TaskRefused` for a topic created anew."""
        with self._open() as journal:
            require_same(journal, self.identities)
            return at.extent_of(journal, self.identities)

    def ranges(self, start: Places, end: Places) -> list[Range]:
        """Cut what lies between. Raises `HistoryGap` when some of it is gone."""
        if missing := at.holes(self.extent(), start):
            raise HistoryGap("; ".join(map(str, missing)))
        rows = max(_LEAST_ROWS, -(-at.distance(start, end) // self.tasks))
        return [
            Range(topic, number, first, min(first + rows, last))
            for topic, partitions in end.items()
            for number, last in partitions.items()
            for first in range(at.place(start, topic, number) or 0, last, rows)
        ]

    def _open(self) -> "closing[Journal]":
        return closing(open_journal(self.url, client_name="packhorse-archive"))


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The journal as a stream, limited in rows a batch; with `availableNow` it ends."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._target: Places | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins."""
        starting = self._plan.starting
        return at.as_document(starting or at.starts(self._plan.extent(), {}))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much one batch takes."""
        return ReadMaxRows(self._plan.limit) if self._plan.limit else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends."""
        begin = at.from_document(start)
        end = at.furthest(begin, self._target or at.ends(self._plan.extent()))
        if isinstance(limit, ReadMaxRows):
            end = _limited(begin, end, limit.max_rows)
        return at.as_document(end)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the journal's end."""
        return at.as_document(at.ends(self._plan.extent()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take the present end of the journal for this run's."""
        self._target = at.ends(self._plan.extent())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut a batch into ranges. Raises `HistoryGap`."""
        ranges = self._plan.ranges(at.from_document(start), at.from_document(end))
        return [InputPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Name the records of one range."""
        wanted: Range = partition.value
        for first in range(wanted.start, wanted.end, _NAMED_AT_ONCE):
            offsets = range(first, min(first + _NAMED_AT_ONCE, wanted.end))
            topics = pa.repeat(wanted.topic, len(offsets))
            numbers = pa.repeat(pa.scalar(wanted.partition, pa.int32()), len(offsets))
            columns = [topics, numbers, pa.array(offsets, pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, schema=_COLUMNS)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the journal keeps no positions."""

    def stop(self) -> None:
        """End the process that plans, in silence when Spark has left it.

        Otherwise it tells a traceback of that to a closed socket, and another one of the socket.
        """
        if isinstance(sys.exception(), EOFError):
            os._exit(0)


def require_same(journal: Journal, identities: Mapping[str, str]) -> None:
    """Raise `TaskRefused` when a topic is another one than `identities` says (R24)."""
    for topic, identity in identities.items():
        found = journal.identity(topic)
        if found != identity:
            raise TaskRefused(
                f"topic {topic} was created anew: it is {found}, and {identity} was archived; "
                "archive the new journal with another PACKHORSE_TABLES_URL"
            )


def _limited(start: Places, end: Places, rows: int) -> Places:
    """Return an end at most `rows` offsets behind `start`: small partitions are read whole."""
    waiting = sorted(
        (last - (at.place(start, topic, number) or 0), topic, number)
        for topic, partitions in end.items()
        for number, last in partitions.items()
    )
    found: dict[str, dict[int, int]] = {topic: dict(parts) for topic, parts in end.items()}
    for done, (size, topic, number) in enumerate(waiting):
        share = min(size, -(-rows // (len(waiting) - done)))
        found[topic][number] = (at.place(start, topic, number) or 0) + share
        rows -= share
    return found
