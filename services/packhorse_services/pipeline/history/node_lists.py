"""The nodes of a snapshot as a fold needs them: paths and numbers, and no texts.

Beside each file of a part lies the list of its nodes, made when the file is. So a fold reads a
hundred bytes of a node instead of unpacking and hashing it. A list that is not there, or that does
not fit its file, costs time: the part is read instead.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from packhorse.blobs.api import BlobMissing, BlobStore
from packhorse.content.node import Node
from packhorse.packages.format import decoded
from packhorse.snapshots.parts import Change, EncodedNode, read_changes, read_encoded, read_part
from packhorse.snapshots.snapshot import Part, PartChanges, PartFile, node_list_key
from packhorse_services.pipeline.history.decoding import binaries_text
from packhorse_services.pipeline.history.fold import hash_of

ROWS = pa.schema([("path", pa.string()), ("size", pa.int64()), ("hash", pa.int64())])
"""Size and hash are null where a change leaves nothing."""
_BATCH_ROWS = 20_000
_STORED: dict[str, Any] = {
    "compression": "zstd",
    "write_page_checksum": True,
    "write_statistics": False,  # nobody looks for rows in a list
    "use_dictionary": ["size"],  # one of hashes is larger than they are
    "column_encoding": {"path": "DELTA_BYTE_ARRAY"},
}

_Row = tuple[str, int | None, int | None]
_UNKNOWN: _Row = ("", None, None)


class ListedNode(NamedTuple):
    """A node as a part has it, how many characters it has, and its hash (`hash_of`)."""

    node: EncodedNode
    size: int
    hash: int

    @property
    def path(self) -> str:
        """Where it is."""
        return self.node.path


ListedChange = Change[ListedNode]


def measured(node: Node) -> ListedNode:
    """Return a node with its numbers. Raises as `EncodedNode.of` does."""
    return ListedNode(EncodedNode.of(node), *_numbers(node))


def _numbers(node: Node) -> tuple[int, int]:
    binaries = binaries_text(node.binaries)
    size = len(node.path) + len(node.properties) + len(binaries)
    return size, hash_of(node.path, node.type, node.properties, binaries)


class NodeList:
    """The list of a file's nodes while they pass by; some 100 bytes each are in memory."""

    def __init__(self) -> None:
        self._rows = [ROWS.empty_table()]
        self._waiting: list[_Row] = []

    def nodes(self, nodes: Iterable[ListedNode]) -> Iterator[EncodedNode]:
        """Pass nodes on, and remember what the list says of them."""
        for node, size, number in nodes:
            self._note((node.path, size, number))
            yield node

    def changes(self, changes: Iterable[ListedChange]) -> Iterator[Change[EncodedNode]]:
        """Do the same with changes."""
        for path, now in changes:
            self._note((path, now and now.size, now and now.hash))
            yield Change(path, now and now.node)

    def store(self, file: PartFile, blobs: BlobStore) -> None:
        """Store the list beside its file; one that is there already is the same."""
        store_list(pa.concat_tables([*self._rows, _table(self._waiting)]), file, blobs)

    def _note(self, row: _Row) -> None:
        self._waiting.append(row)
        if len(self._waiting) >= _BATCH_ROWS:
            self._rows.append(_table(self._waiting))
            self._waiting.clear()


def store_list(rows: pa.Table, file: PartFile, blobs: BlobStore) -> None:
    """Store these rows as the list of a file's nodes."""
    data = io.BytesIO()
    pq.write_table(rows, data, **_STORED)
    blobs.put(node_list_key(file), [data.getvalue()])


def listed(part: Part, blobs: BlobStore) -> pa.Table | None:
    """Return path, size and hash of a part's nodes; None when there are no lists that fit."""
    rows = _listed(part, part.nodes, blobs)
    if rows is None or part.changes is None:
        return rows
    changes = _listed(part.changes, part.changes.entries, blobs)
    if changes is None:
        return None
    unchanged = pc.invert(pc.is_in(rows["path"], value_set=changes["path"]))
    there = changes.filter(pc.is_valid(changes["hash"]))
    every = pa.concat_tables([rows.filter(unchanged), there]).sort_by("path")
    return every if every.num_rows == part.held else None


def _listed(file: PartFile, entries: int, blobs: BlobStore) -> pa.Table | None:
    try:
        data = b"".join(blobs.get(node_list_key(file)))
        rows = pq.read_table(io.BytesIO(data), page_checksum_verification=True)
    except (BlobMissing, pa.ArrowException, OSError):
        return None
    fits = rows.schema.equals(ROWS) and rows.num_rows == entries
    return rows if fits and _in_order(rows["path"]) else None


def sorted_by_path(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch in path order."""
    return batch if _in_order(batch.column("path")) else batch.sort_by("path")


def _in_order(paths: pa.ChunkedArray | pa.Array) -> bool:
    """Return whether each path is there once, in path order: a fold passes most of them on."""
    return pc.all(pc.less(paths[:-1], paths[1:])).as_py() is not False


def made_rows(part: Part, blobs: BlobStore) -> pa.Table:
    """Return path, size and hash of a part's nodes, made from the part itself."""
    rows = ((node.path, *_numbers(node)) for node in read_part(part, blobs))
    batches = iter(lambda: list(islice(rows, _BATCH_ROWS)), [])
    return pa.concat_tables([ROWS.empty_table(), *map(_table, batches)])


def listed_nodes(part: Part, blobs: BlobStore) -> Iterator[ListedNode]:
    """Yield the nodes of a part, whose numbers are listed or made anew."""
    rows = listed(part, blobs)
    if rows is None:
        yield from map(measured, read_part(part, blobs))
        return
    for node, row in zip(read_encoded(part, blobs), _each(rows), strict=True):
        yield _with_numbers(node, row)


def listed_changes(changes: PartChanges, blobs: BlobStore) -> Iterator[ListedChange]:
    """Yield what has changed in a part, in the same way."""
    rows = _listed(changes, changes.entries, blobs)
    each = repeat(_UNKNOWN, changes.entries) if rows is None else _each(rows)
    for (path, now), row in zip(read_changes(changes, blobs), each, strict=True):
        yield Change(path, now and _with_numbers(now, row))


def _each(rows: pa.Table) -> Iterator[_Row]:
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _with_numbers(node: EncodedNode, row: _Row) -> ListedNode:
    path, size, number = row
    if path != node.path or size is None or number is None:
        return measured(decoded(node.data))
    return ListedNode(node, size, number)


def _table(rows: Sequence[_Row]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(ROWS)
    arrays = [pa.array(one, field.type) for one, field in zip(columns, ROWS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ROWS)
