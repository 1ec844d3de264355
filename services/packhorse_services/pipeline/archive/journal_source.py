"""The SQL journal as Spark's source: its records in the columns of bronze, as Arrow batches.

Offsets are `{topic: {partition: next}}`. Tasks read by the product's own reader.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse_services.pipeline.archive import places as at
from packhorse_services.pipeline.archive.places import Places
from packhorse_services.pipeline.archive.reading import read_batches
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.storage.schemas import BRONZE

NAME = "packhorse_journal"
URL = "secret_journal_url"
"""Spark blackens options whose names say secret: the URL holds a password."""
IDENTITIES = "identities"
STARTING = "starting"
MAX_OFFSETS = "max_offsets"
MAX_TASKS = "max_tasks"

_FEW_TASKS = 2
_RECORDS_A_TASK = 10_000
FEW_RECORDS = _FEW_TASKS * _RECORDS_A_TASK
"""What few tasks read, however many there may be."""


def tasks(records: int, most: int) -> int:
    """Return by how many tasks records are read: each costs a tenth of a second, and files."""
    return min(most, max(_FEW_TASKS, records // _RECORDS_A_TASK))


@dataclass(frozen=True, slots=True)
class Share(InputPartition):
    """What one task reads."""

    ranges: Sequence[at.OffsetRange]


class JournalSource(DataSource):
    """A stream of the journal's records.

    Options: the journal's URL, the topics and their identities, where to start, how many offsets
    a batch takes at most, and how many tasks it is shared among.
    """

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of bronze."""
        return BRONZE

    def streamReader(self, schema: StructType) -> "JournalStream":  # noqa: N802, ARG002 - Spark's
        """Return the reader of a stream."""
        return JournalStream(_Plan(self.options))


class _Plan:
    """The options, and what is asked of the journal on the driver."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.url = options[URL]
        self.identities: dict[str, str] = json.loads(options[IDENTITIES])
        self.limit, self.tasks = int(options[MAX_OFFSETS]), int(options[MAX_TASKS])
        self.starting = at.from_document(json.loads(options[STARTING]))

    def extent(self) -> at.Extent:
        """Return what the journal holds. Raises `TaskRefused` for a topic created anew."""
        with opened(self.url) as journal:
            require_same(journal, self.identities)
            return at.extent_of(journal, self.identities)


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The journal as a stream, limited in rows a batch; with `availableNow` it ends."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._target: Places | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins."""
        return at.as_document(self._plan.starting)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much one batch takes."""
        return ReadMaxRows(self._plan.limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends."""
        begin = at.from_document(start)
        end = at.furthest(begin, self._target or at.ends(self._plan.extent()))
        if isinstance(limit, ReadMaxRows):
            end = _limited(begin, end, limit.max_rows)
        return at.as_document(end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take the present end of the journal for this run's."""
        self._target = at.ends(self._plan.extent())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return as even shares of what lies between two places."""
        places = at.from_document(start), at.from_document(end)
        count = tasks(at.distance(*places), self._plan.tasks)
        return [Share(share) for share in at.shares(*places, count)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the records of a share, in a task. Raises as `read_batches` does."""
        with opened(self._plan.url) as journal:
            for wanted in cast(Share, partition).ranges:
                yield from read_batches(journal, wanted, self._plan.identities[wanted.topic])

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the journal keeps no positions."""

    def stop(self) -> None:
        """End the process that plans, in silence when Spark has left it.

        Otherwise it tells a traceback of that to a closed socket, and another one of the socket.
        """
        if isinstance(sys.exception(), EOFError):
            os._exit(0)


def opened(url: str) -> "closing[Journal]":
    """Return a connection to the journal."""
    return closing(open_journal(url, client_name="packhorse-archive"))


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
