"""What has changed in a part since it was stored: read with it, and held to what it promises."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.blobs.api import BlobCorrupt, BlobMissing
from packhorse.blobs.filesystem import FilesystemBlobs
from packhorse.content.node import InvalidNode, InvalidPath, Node
from packhorse.errors import Permanent
from packhorse.packages.compression import compress
from packhorse.packages.limits import PackageCorrupt, PackageLimits, PackageRefused
from packhorse.snapshots.parts import (
    Change,
    EncodedNode,
    changes_of,
    merged,
    read_changes,
    read_encoded,
    read_part,
    write_changes,
    write_part,
)
from packhorse.snapshots.snapshot import Part, part_key
from packhorse.wire.node_codec import NodeRecord, encode_node, encode_removal
from packhorse.wire.record import Undecodable
from tests.harness.feed import page
from tests.harness.snapshots import encoded_nodes

ID = "0123456789abcdef"
PATHS = st.sampled_from([f"/{name}" for name in ("a", "a-b", "a/b", "ab", "b", "é", "\U0001f600")])
CONTENT = st.dictionaries(PATHS, st.integers(0, 9))
CHANGES = st.dictionaries(PATHS, st.none() | st.integers(10, 19))


@pytest.fixture
def blobs(tmp_path: Path) -> FilesystemBlobs:
    return FilesystemBlobs(tmp_path)


def in_order(changes: Mapping[str, int | None]) -> Iterator[Change[Node]]:
    for path in sorted(changes):
        number = changes[path]
        yield Change(path, None if number is None else page(path, number))


def after(before: Mapping[str, int], changes: Mapping[str, int | None]) -> list[Node]:
    every = {**before, **changes}
    return [page(path, number) for path in sorted(every) if (number := every[path]) is not None]


def stored(
    blobs: FilesystemBlobs, before: Mapping[str, int], changes: Mapping[str, int | None]
) -> Part:
    nodes = encoded_nodes(page(path, before[path]) for path in sorted(before))
    part = write_part(nodes, part_key(ID, 0), blobs)
    encoded = (Change(one.path, one.now and EncodedNode.of(one.now)) for one in in_order(changes))
    return write_changes(part, encoded, len(after(before, changes)), part_key(ID, 1), blobs)


@given(CONTENT, CHANGES)
def test_changes_are_merged_by_path(before: dict[str, int], changes: dict[str, int | None]) -> None:
    nodes = [page(path, before[path]) for path in sorted(before)]
    assert list(merged(nodes, in_order(changes))) == after(before, changes)


@given(CONTENT, CHANGES)
def test_a_part_is_read_with_its_changes(
    before: dict[str, int], changes: dict[str, int | None]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        blobs = FilesystemBlobs(Path(folder))
        part = stored(blobs, before, changes)
        assert list(read_part(part, blobs)) == after(before, changes)
        assert list(read_encoded(part, blobs)) == [*encoded_nodes(after(before, changes))]
        assert part.changes is not None
        found = [(one.path, one.now is not None) for one in read_changes(part.changes, blobs)]
        assert found == [(path, changes[path] is not None) for path in sorted(changes)]
        assert list(read_part(dataclasses.replace(part, changes=None), blobs)) == after(before, {})


BEFORE, LATER = {"/a": 1, "/b": 2}, {"/b": None, "/c": 3}


@pytest.mark.parametrize(
    "promised",
    [
        {"sha256": "0" * 64},
        {"length": 5},
        {"length": 5_000},
        {"content_length": 5},
        {"content_length": 5_000},
        {"entries": 1},
        {"entries": 3},
        {"nodes": 1},
        {"nodes": 3},
    ],
)
def test_r30_changes_that_break_a_promise_are_corrupt(
    blobs: FilesystemBlobs, promised: dict[str, Any]
) -> None:
    part = stored(blobs, BEFORE, LATER)
    assert part.changes is not None
    assert part.held == len(list(read_part(part, blobs))) == 2
    broken = dataclasses.replace(part, changes=dataclasses.replace(part.changes, **promised))
    with pytest.raises((BlobCorrupt, PackageCorrupt)):
        list(read_part(broken, blobs))


def test_r30_changes_that_ask_for_too_much_are_refused(blobs: FilesystemBlobs) -> None:
    part = stored(blobs, {"/a": 1}, {f"/b{number}": number for number in range(10)})
    assert part.changes is not None
    assert part.content_length < part.changes.content_length
    with pytest.raises(PackageRefused):
        list(read_part(part, blobs, PackageLimits(content_bytes=part.content_length)))


def test_changes_that_are_gone_are_missing(blobs: FilesystemBlobs) -> None:
    part = stored(blobs, BEFORE, LATER)
    blobs.delete(part_key(ID, 1))
    with pytest.raises(BlobMissing):
        list(read_part(part, blobs))


def test_changes_may_be_stored_again_but_not_differently(blobs: FilesystemBlobs) -> None:
    once, again = (stored(blobs, BEFORE, LATER).changes for _ in range(2))
    assert once is not None
    assert again is not None
    assert dataclasses.replace(again, since_ms=once.since_ms) == once
    with pytest.raises(BlobCorrupt, match="new snapshot id"):
        stored(blobs, BEFORE, {"/b": None})


def test_what_is_not_in_path_order_is_neither_written_nor_read(blobs: FilesystemBlobs) -> None:
    part = stored(blobs, BEFORE, {})
    twice = [Change("/c", None), Change("/c", None)]
    with pytest.raises(PackageCorrupt, match="in order"):
        write_changes(part, twice, 2, part_key(ID, 2), blobs)
    data = bytes([len(encode_removal("/c"))]) + encode_removal("/c")
    written = blobs.put(part_key(ID, 2), [compress(2 * data)])
    assert part.changes is not None
    changes = dataclasses.replace(
        part.changes,
        key=part_key(ID, 2),
        sha256=written.sha256,
        length=written.length,
        content_length=2 * len(data),
        entries=2,
    )
    with pytest.raises(PackageCorrupt, match="in order"):
        list(read_part(dataclasses.replace(part, changes=changes), blobs))


def test_a_path_without_a_node_is_that_alone() -> None:
    assert list(changes_of([encode_removal("/a")])) == [Change("/a", None)]
    for data, error in (
        (encode_removal("/a//b"), InvalidPath),
        (encode_removal(""), InvalidPath),
        (encode_node(NodeRecord("/a", "", b"{}")), InvalidNode),
        (b"\xff", Undecodable),
    ):
        with pytest.raises(error):
            list(changes_of([data]))


@given(st.binary(max_size=100))
def test_r30_a_message_of_any_bytes_is_refused_in_known_ways(data: bytes) -> None:
    with contextlib.suppress(Permanent):
        assert len(list(changes_of([data]))) == 1
