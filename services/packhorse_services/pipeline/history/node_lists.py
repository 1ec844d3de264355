"""The nodes of a snapshot as a fold needs them: paths and numbers, and no texts.

Beside each part lies the list of its nodes, made when the part is. So a fold reads a hundred bytes
of a node instead of unpacking and hashing it. A list that is not there, or that does not fit its
part, costs time: the part is read instead.
"""

import io
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from packhorse.blobs.api import BlobMissing, BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.node import ROOT, Node
from packhorse.snapshots.parts import read_part
from packhorse.snapshots.snapshot import ContentSnapshot, Part, node_list_key
from packhorse_services.pipeline.history.decoding import binaries_text
from packhorse_services.pipeline.history.fold import hash_of

_BASE = "path string, size bigint, hash bigint, position int"
_LIST = pa.schema([("path", pa.string()), ("size", pa.int64()), ("hash", pa.int64())])
_BATCH_ROWS = 20_000
_TASKS_OF_A_CORE = 4


class ListedNode(NamedTuple):
    """A node, how many characters it has, and its hash (`hash_of`)."""

    node: Node
    size: int
    hash: int


def measured(node: Node) -> ListedNode:
    """Return a node with its numbers."""
    binaries = binaries_text(node.binaries)
    size = len(node.path) + len(node.properties) + len(binaries)
    return ListedNode(node, size, hash_of(node.path, node.type, node.properties, binaries))


class NodeList:
    """The list of a part's nodes while these pass by; some 100 bytes each are in memory."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, int, int]] = []
        self._batches: list[pa.RecordBatch] = []

    def noted(self, nodes: Iterable[ListedNode]) -> Iterator[Node]:
        """Pass nodes on, and remember what the list says of them."""
        for node, size, number in nodes:
            self._rows.append((node.path, size, number))
            if len(self._rows) >= _BATCH_ROWS:
                self._pack()
            yield node

    def rows(self) -> pa.Table:
        """Return path, size and hash of those that have passed."""
        self._pack()
        return pa.Table.from_batches(self._batches, _LIST)

    def store(self, part: Part, blobs: BlobStore) -> None:
        """Store the list beside its part; one that is there already is the same."""
        data = io.BytesIO()
        pq.write_table(self.rows(), data, compression="zstd", write_page_checksum=True)
        blobs.put(node_list_key(part), [data.getvalue()])

    def _pack(self) -> None:
        if self._rows:
            columns = zip(zip(*self._rows, strict=True), _LIST, strict=True)
            arrays = [pa.array(column, one.type) for column, one in columns]
            self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=_LIST))
            self._rows = []


def listed(part: Part, blobs: BlobStore) -> pa.Table | None:
    """Return the path, size and hash of a part's nodes; None when there is no list that fits."""
    try:
        data = b"".join(blobs.get(node_list_key(part)))
        rows = pq.read_table(io.BytesIO(data), page_checksum_verification=True)
    except (BlobMissing, pa.ArrowException, OSError):
        return None
    fits = rows.schema.equals(_LIST) and rows.num_rows == part.nodes and _in_order(rows["path"])
    return rows if fits else None


def _in_order(paths: pa.ChunkedArray) -> bool:
    """Return whether each path is there once, in path order: a fold passes most of them on."""
    return pc.all(pc.less(paths[:-1], paths[1:])).as_py() is not False


def list_of(part: Part, blobs: BlobStore) -> NodeList:
    """Return the same, made from the part itself."""
    made = NodeList()
    for _ in made.noted(map(measured, read_part(part, blobs))):
        pass
    return made


def base_writes(
    spark: SparkSession, snapshot: ContentSnapshot, blobs_url: str, within: str = ROOT
) -> DataFrame:
    """Return path, size, hash and position (which part has it) of the nodes of a snapshot."""
    held = snapshot.parts

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(open_blobs(blobs_url)) as blobs:
            for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
                rows = _within(_rows(held[number], blobs), within)
                position = pa.array([number] * rows.num_rows, pa.int32())
                placed = rows.append_column("position", position)
                yield from placed.to_batches(max_chunksize=_BATCH_ROWS)

    tasks = max(1, min(len(held), spark.sparkContext.defaultParallelism * _TASKS_OF_A_CORE))
    return spark.range(0, len(held), 1, tasks).mapInArrow(read, _BASE)


def _rows(part: Part, blobs: BlobStore) -> pa.Table:
    rows = listed(part, blobs)
    return list_of(part, blobs).rows() if rows is None else rows


def _within(rows: pa.Table, path: str) -> pa.Table:
    if path == ROOT:
        return rows
    below = pc.starts_with(rows["path"], f"{path}/")
    return rows.filter(pc.or_(pc.equal(rows["path"], path), below))
