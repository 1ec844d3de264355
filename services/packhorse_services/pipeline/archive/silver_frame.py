"""Bronze to silver in one pass: a frame in which every record has its row, or why it has none."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse.wire.record import Undecodable
from packhorse.wire.topics import Topics
from packhorse_services.pipeline import schemas, tables
from packhorse_services.pipeline.archive.bodies import Bodies, opened
from packhorse_services.pipeline.archive.decoding import Row, decoded
from packhorse_services.pipeline.archive.delta import SILVER

_PLACE = ("topic", "partition", "offset", "time", "journal_id", "day")
_RAW = ("key", "headers", "value")
_MAX_REASON = 1_000

Batches = Iterator[pa.RecordBatch]


def _column(table: str) -> str:
    """Return the name of the column that holds the rows of a table."""
    return table.rpartition("/")[2]


ROWS = {name: _column(name) for name in SILVER if name != tables.QUARANTINE}


def _own(schema: t.StructType) -> list[t.StructField]:
    """Return the columns of a table beside the place."""
    return [field for field in schema.fields if field.name not in _PLACE]


DECODED = t.StructType(
    [
        *(schemas.BRONZE[name] for name in _PLACE),
        *(t.StructField(name, schemas.BRONZE[name].dataType) for name in _RAW),
        t.StructField("reason", t.StringType()),
        *(
            t.StructField(column, t.StructType(_own(SILVER[table])))
            for table, column in ROWS.items()
        ),
    ]
)
"""A record's place; its row in the column of its table; and as it was, where there is a reason."""


def decode(bronze: DataFrame, topics: Topics, source_url: str, target_url: str) -> DataFrame:
    """Return the records of bronze decoded, with the columns of `DECODED`.

    Bodies that went by reference are copied from the blob store at `source_url` to the one at
    `target_url` on the way; reading the frame twice does it once.
    """
    return bronze.mapInArrow(_decoder(topics, source_url, target_url), DECODED)


def _decoder(topics: Topics, source_url: str, target_url: str) -> Callable[[Batches], Batches]:
    def decode_batches(batches: Batches) -> Batches:
        shape = to_arrow_schema(DECODED, timezone="UTC")
        with opened(source_url, target_url) as bodies:
            for batch in batches:
                yield _decoded_batch(batch, topics, bodies, shape)

    return decode_batches


def _decoded_batch(
    batch: pa.RecordBatch, topics: Topics, bodies: Bodies, shape: pa.Schema
) -> pa.RecordBatch:
    found = _Found(batch.num_rows)
    raw = [batch.column(name).to_pylist() for name in ("topic", *_RAW)]
    for number, (topic, key, headers, value) in enumerate(zip(*raw, strict=True)):
        named = {one["key"]: one["value"] or b"" for one in headers}
        try:
            table, row = decoded(topics, topic, named, value)
        except Undecodable as error:
            found.refuse(number, str(error), (key, headers, value))
            continue
        found.rows[ROWS[table]][number] = row
        if table == tables.PACKAGES and (reason := bodies.keep(row)):
            found.refuse(number, reason, (key, headers, value))
    return found.batch(batch, shape)


class _Found:
    """What the records of a batch have turned out to be, in columns."""

    def __init__(self, size: int) -> None:
        self.rows: dict[str, list[Row | None]] = {name: [None] * size for name in ROWS.values()}
        self._raw: dict[str, list[Any]] = {name: [None] * size for name in (*_RAW, "reason")}

    def refuse(self, number: int, reason: str, raw: tuple[Any, ...]) -> None:
        """Keep a record as it was, with the reason."""
        text = reason.encode(errors="replace").decode()[:_MAX_REASON]
        for name, value in zip((*_RAW, "reason"), (*raw, text), strict=True):
            self._raw[name][number] = value

    def batch(self, source: pa.RecordBatch, shape: pa.Schema) -> pa.RecordBatch:
        """Return the columns of `shape`; those of the place are the source's own."""
        columns = self._raw | self.rows
        return pa.RecordBatch.from_arrays(
            [
                source.column(field.name)
                if field.name in _PLACE
                else pa.array(columns[field.name], field.type)
                for field in shape
            ],
            schema=shape,
        )


def rows_of(table: str, frame: DataFrame) -> DataFrame:
    """Return the rows of one silver table from a frame with the columns of `DECODED`."""
    wanted = [field.name for field in SILVER[table].fields]
    if table == tables.QUARANTINE:
        return frame.where(belongs(table)).select(*wanted)
    column = ROWS[table]
    places = [f.col(name) for name in _PLACE if name in wanted]
    own = [f.col(column)[field.name].alias(field.name) for field in _own(SILVER[table])]
    return frame.where(belongs(table)).select(*places, *own)


def belongs(table: str) -> Column:
    """Return whether a row of `DECODED` has something for a table."""
    if table == tables.QUARANTINE:
        return f.col("reason").isNotNull()
    return f.col(ROWS[table]).isNotNull()
