"""The nodes of a snapshot as a fold needs them: paths and numbers, and no texts.

Beside each part lies the list of its nodes, made when the part is. So a fold reads a hundred bytes
of a node instead of unpacking and hashing it, and a snapshot that goes on from it knows which frame
of the part a node is in. A list that is not there, or that does not fit its part, costs time: the
part is read instead.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from packhorse.blobs.api import BlobMissing, BlobStore
from packhorse.content.node import Node
from packhorse.packages.format import CHUNK_BYTES
from packhorse.snapshots.parts import EncodedNode, Frame, frames_of, read_part
from packhorse.snapshots.snapshot import Part, node_list_key
from packhorse_services.pipeline.history.decoding import binaries_text
from packhorse_services.pipeline.history.fold import hash_of

ROWS = pa.schema([("path", pa.string()), ("size", pa.int64()), ("hash", pa.int64())])
_LIST = ROWS.append(pa.field("end", pa.int64()))
"""`end`: of the node's frame, in bytes of the stored part."""
_BATCH_ROWS = 20_000
_STORED: dict[str, Any] = {
    "compression": "zstd",
    "write_page_checksum": True,
    "write_statistics": False,  # nobody looks for rows in a list
    "use_dictionary": ["size", "end"],  # one of hashes is larger than they are
    "column_encoding": {"path": "DELTA_BYTE_ARRAY"},
}


class ListedNode(NamedTuple):
    """A node as a part has it, how many characters it has, and its hash (`hash_of`)."""

    node: EncodedNode
    size: int
    hash: int


def measured(node: Node) -> ListedNode:
    """Return a node with its numbers. Raises as `EncodedNode.of` does."""
    return ListedNode(EncodedNode.of(node), *_numbers(node))


def _numbers(node: Node) -> tuple[int, int]:
    binaries = binaries_text(node.binaries)
    size = len(node.path) + len(node.properties) + len(binaries)
    return size, hash_of(node.path, node.type, node.properties, binaries)


class ListedFrame(NamedTuple):
    """A frame of a part, or several as they are stored, and the list of its nodes.

    `frame` begins at `begin` where its nodes' `end` counts from.
    """

    frame: Frame
    rows: pa.Table
    begin: int = 0

    @property
    def size(self) -> int:
        """How many characters its nodes have."""
        return int(pc.sum(self.rows["size"]).as_py())


def listed_frames(
    nodes: Iterable[ListedNode], frame_bytes: int = CHUNK_BYTES
) -> Iterator[ListedFrame]:
    """Yield nodes, which come in path order, in frames. Raises as `frames_of` does."""
    passed: list[tuple[str, int, int]] = []

    def noted() -> Iterator[EncodedNode]:
        for node, size, number in nodes:
            passed.append((node.path, size, number))
            yield node

    for frame in frames_of(noted(), frame_bytes=frame_bytes):
        end = pa.array([len(frame.data)] * frame.nodes, pa.int64())
        rows = _table(passed[: frame.nodes]).append_column(_LIST.field("end"), end)
        yield ListedFrame(frame, rows)
        del passed[: frame.nodes]


class NodeList:
    """The list of a part's nodes while its frames pass by; some 100 bytes each are in memory."""

    def __init__(self) -> None:
        self._rows = [_LIST.empty_table()]
        self._end = 0

    def noted(self, frames: Iterable[ListedFrame]) -> Iterator[Frame]:
        """Pass frames on, and remember what the list says of them."""
        for frame, rows, begin in frames:
            ends = pc.add(rows["end"], self._end - begin)
            self._rows.append(rows.set_column(len(_LIST) - 1, _LIST.field("end"), ends))
            self._end += len(frame.data)
            yield frame

    def store(self, part: Part, blobs: BlobStore) -> None:
        """Store the list beside its part; one that is there already is the same."""
        store_list(pa.concat_tables(self._rows), part, blobs)


def store_list(rows: pa.Table, part: Part, blobs: BlobStore) -> None:
    """Store these rows as the list of a part's nodes."""
    data = io.BytesIO()
    pq.write_table(rows, data, **_STORED)
    blobs.put(node_list_key(part), [data.getvalue()])


def listed(part: Part, blobs: BlobStore) -> pa.Table | None:
    """Return path, size, hash and end of a part's nodes; None when there is no list that fits."""
    try:
        data = b"".join(blobs.get(node_list_key(part)))
        rows = pq.read_table(io.BytesIO(data), page_checksum_verification=True)
    except (BlobMissing, pa.ArrowException, OSError):
        return None
    fits = rows.schema.equals(_LIST) and rows.num_rows == part.nodes
    return rows if fits and _in_order(rows["path"]) and _fit(rows["end"], part) else None


def sorted_by_path(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch in path order."""
    return batch if _in_order(batch.column("path")) else batch.sort_by("path")


def _in_order(paths: pa.ChunkedArray | pa.Array) -> bool:
    """Return whether each path is there once, in path order: a fold passes most of them on."""
    return pc.all(pc.less(paths[:-1], paths[1:])).as_py() is not False


def _fit(ends: pa.ChunkedArray, part: Part) -> bool:
    """Return whether frames that end there make up the part."""
    rising = pc.all(pc.less_equal(ends[:-1], ends[1:])).as_py() is not False
    return rising and (not len(ends) or 0 < ends[0].as_py() <= ends[-1].as_py() == part.length)


def made_rows(part: Part, blobs: BlobStore) -> pa.Table:
    """Return path, size and hash of a part's nodes, made from the part itself."""
    rows = ((node.path, *_numbers(node)) for node in read_part(part, blobs))
    batches = iter(lambda: list(islice(rows, _BATCH_ROWS)), [])
    return pa.concat_tables([ROWS.empty_table(), *map(_table, batches)])


def _table(rows: Sequence[tuple[str, int, int]]) -> pa.Table:
    columns = zip(zip(*rows, strict=True), ROWS, strict=True)
    return pa.Table.from_arrays([pa.array(one, field.type) for one, field in columns], schema=ROWS)
