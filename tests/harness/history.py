"""Packages as the archive holds them, made without a journal, and what they come to."""

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from packhorse.blobs.api import BlobStore
from packhorse.content.node import Binary, Node
from packhorse.messaging.api import Record
from packhorse.packages.apply import apply
from packhorse.packages.body import pack
from packhorse.packages.scope import type_of
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse.wire.package_codec import encode_package
from packhorse_services.pipeline.archive.reading import as_batch
from packhorse_services.pipeline.history.content import ContentHistory as Past
from packhorse_services.pipeline.history.events import package_events
from packhorse_services.pipeline.history.fetching import Texts
from packhorse_services.pipeline.history.fold import fold as product_fold
from packhorse_services.pipeline.history.packages import Packages, package_files
from packhorse_services.pipeline.history.read import bronze_version
from packhorse_services.pipeline.pieces import kept
from packhorse_services.pipeline.storage import schemas, tables
from packhorse_services.pipeline.storage.delta import prepare
from packhorse_services.pipeline.storage.location import Location
from tests.harness.feed import TOPICS
from tests.harness.fold import Content, fold
from tests.harness.subscriber import content_in

JOURNAL = "journal-1"
BEGIN_MS = 1_700_000_000_000
"""The journal's time of offset 0; a second passes with each offset."""


@dataclass
class History:
    """Packages in the order of their offsets; bodies of more than 819,200 bytes go to `bodies`."""

    bodies: BlobStore
    agent: str = "main"
    producer: str = ""
    records: list[Record] = field(default_factory=list)
    next_offset: int = 0

    def add(
        self,
        *nodes: Node,
        deep: Sequence[str] = (),
        part: tuple[str, str] = ("", ""),
        to: Sequence[str] = (),
    ) -> int:
        """Add nodes: each alone, or the subtrees of `deep`, or of its one path a part."""
        shallow = () if deep else tuple(node.path for node in nodes)
        return self.append(Action.ADD, shallow, tuple(deep), nodes, part, to)

    def delete(self, *paths: str) -> int:
        return self.append(Action.DELETE, paths, ())

    def append(
        self,
        action: Action,
        paths: tuple[str, ...],
        deep: tuple[str, ...],
        nodes: Iterable[Node] | None = None,
        part: tuple[str, str] = ("", ""),
        to: Sequence[str] = (),
    ) -> int:
        offset = self.next_offset
        package_id = f"dstrpck-{offset}-{offset:016x}"
        body = None if nodes is None else pack(nodes, package_id, self.bodies)
        numbered = (self.producer, 1 if self.producer else 0, offset if self.producer else 0)
        entry = PackageEntry(
            *(package_id, self.agent, action, paths, deep, "tester", *numbered),
            *(body.length if body else 0, body.node_count if body else 0, 0, *part, tuple(to)),
        )
        carried = body.body if body else None
        return self.message(PackageMessage(entry, carried, "", type_of(entry)))

    def message(self, message: PackageMessage) -> int:
        encoded = encode_package(message)
        return self.raw(encoded.value, dict(encoded.headers))

    def again(self, offset: int) -> int:
        """Append the record at `offset` once more."""
        (record,) = (one for one in self.records if one.offset == offset)
        return self.raw(record.value, dict(record.headers))

    def raw(self, value: bytes, headers: dict[str, bytes]) -> int:
        offset = self.next_offset
        time_ms = BEGIN_MS + offset * 1000
        self.records.append(Record(TOPICS.package, 0, offset, time_ms, None, headers, value))
        self.next_offset += 1
        return offset

    def model(self, **options: object) -> Content:
        return fold(self.records, self.bodies, **options)  # type: ignore[arg-type]


def imported(packages: Iterable[PackageMessage], url: str, blobs: BlobStore) -> Content:
    """Return what the product's own import makes of packages in an empty repository."""
    with psycopg.connect(url) as connection:
        apply(connection, packages, blobs)
        connection.commit()
        return content_in(connection)


def archive(location: Location, records: Sequence[Record], journal_id: str = JOURNAL) -> None:
    """Append records to the archive's table, and make the tables beside it; needs no Spark."""
    if not DeltaTable.is_deltatable(location.delta_uri(tables.BRONZE), location.delta_options()):
        prepare(location)
    _append(location, tables.BRONZE, as_batch(records, journal_id))


def statuses(location: Location, *said: tuple[str, int, str]) -> None:
    """Append statuses: subscriber, offset of the package, status."""
    zero = {"string": "", "bigint": 0, "int": 0}
    rows = []
    for number, (subscriber, offset, status) in enumerate(said):
        row = {one.name: zero.get(one.dataType.simpleString()) for one in schemas.STATUSES.fields}
        row |= {"time": _time(BEGIN_MS), "day": _time(BEGIN_MS).date(), "offset": number}
        row |= {"subscriber": subscriber, "publisher_agent": "main", "package_offset": offset}
        row |= {"decided_ms": BEGIN_MS + number}
        rows.append(row | {"status": status, "package_journal_id": JOURNAL})
    _append_rows(location, tables.STATUSES, schemas.STATUSES, rows)


def announcements(location: Location, *said: tuple[str, int]) -> None:
    """Append announcements without subscriptions: subscriber, and when the journal took it."""
    rows = [
        {
            "partition": 0,
            "offset": number,
            "time": _time(time_ms),
            "journal_id": JOURNAL,
            "day": _time(time_ms).date(),
            "subscriber": subscriber,
            "subscriptions": [],
            "editable": True,
            "max_retries": -1,
            "endpoint": "",
            "announced_ms": time_ms,
            "subscriber_instance": "",
        }
        for number, (subscriber, time_ms) in enumerate(said)
    ]
    _append_rows(location, tables.ANNOUNCEMENTS, schemas.ANNOUNCEMENTS, rows)


def gap(location: Location, first_missing: int, next_offset: int) -> None:
    """Note a hole that retention left."""
    row = (TOPICS.package, JOURNAL, 0, first_missing, next_offset, _time(BEGIN_MS))
    named = dict(zip(schemas.GAPS.names, row, strict=True))
    _append_rows(location, tables.GAPS, schemas.GAPS, [named])


def content_of(folded: DataFrame) -> Content:
    """Return path -> (type, properties, binaries), and fail when a path comes twice."""
    content: Content = {}
    for row in folded.collect():
        assert row.path not in content
        content[row.path] = (row.type, json.loads(row.properties), _binaries(row.binaries))
    return content


def packages_of(history: History, folder: Path) -> Packages:
    """Archive a history at a place of its own in `folder`, and return all of its packages."""
    location = Location.parse(tempfile.mkdtemp(dir=folder))
    archive(location, history.records)
    spans = {history.agent: (-1, history.next_offset)}
    files = package_files(location, bronze_version(location, TOPICS.package))
    return Packages(location, JOURNAL, spans, frozenset(), files)


def folded(spark: SparkSession, packages: Packages) -> Content:
    with kept(package_events(spark, packages)) as events:
        return content_of(Past(product_fold(events), Texts(packages, "")).unordered())


def below(prefix: str, nodes: Iterable[Node]) -> list[Node]:
    return [replace(node, path=prefix + node.path) for node in nodes]


def _binaries(text: str) -> tuple[Binary, ...]:
    found = json.loads(text)
    return tuple(
        Binary(name, one["digest"].removeprefix("sha256:"), one["length"], one["media_type"])
        for name, one in sorted(found.items())
    )


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _append_rows(
    location: Location, table: str, schema: StructType, rows: list[dict[str, Any]]
) -> None:
    columns = to_arrow_schema(schema, timezone="UTC")
    _append(location, table, pa.RecordBatch.from_pylist(rows, columns))


def _append(location: Location, table: str, batch: pa.RecordBatch) -> None:
    write_deltalake(location.delta_uri(table), pa.Table.from_batches([batch]), mode="append")
