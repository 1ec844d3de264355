"""The journal's places as Spark's source: how far a batch goes, and nothing of what is in it.

Offsets are `{topic: {partition: next}}`. There are no rows: the tasks that write records read them
themselves (ADR 0034).
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
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
from packhorse_services.pipeline.archive.places import Places
from packhorse_services.pipeline.errors import TaskRefused

NAME = "packhorse_journal"
URL = "secret_journal_url"
"""Spark blackens options whose names say secret: the URL holds a password."""
IDENTITIES = "identities"
STARTING = "starting"
MAX_OFFSETS = "max_offsets"


class JournalSource(DataSource):
    """A stream of offsets without rows.

    Options: the journal's URL, the topics and their identities, where to start (else at the
    oldest offsets), how many offsets a batch takes at most.
    """

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return NAME

    def schema(self) -> str:
        """Return the column that Spark wants a source to have."""
        return "topic string"

    def streamReader(self, schema: StructType) -> "JournalStream":  # noqa: N802, ARG002 - Spark's
        """Return the reader of a stream."""
        return JournalStream(_Plan(self.options))


class _Plan:
    """The options, and what is asked of the journal on the driver."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.url = options[URL]
        self.identities: dict[str, str] = json.loads(options[IDENTITIES])
        limit = options.get(MAX_OFFSETS)
        self.limit = int(limit) if limit else None
        starting = options.get(STARTING)
        self.starting = at.from_document(json.loads(starting)) if starting else None

    def extent(self) -> at.Extent:
        """Return what the journal holds. Raises `TaskRefused` for a topic created anew."""
        with self._open() as journal:
            require_same(journal, self.identities)
            return at.extent_of(journal, self.identities)

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

    def partitions(self, *_places: dict[str, Any]) -> Sequence[InputPartition]:
        """Tell that there are no rows between two places."""
        return []

    def read(self, _partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Return no rows."""
        return iter(())

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
