"""Snapshots in a blob store: parts that keep their promise, manifests that are read with doubt."""

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.blobs.api import BlobCorrupt, BlobMissing, BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.packages.compression import compress
from packhorse.packages.format import write_nodes
from packhorse.packages.limits import PackageCorrupt, PackageLimits, PackageRefused
from packhorse.snapshots import store as snapshots_store
from packhorse.snapshots.parts import read_part, write_part
from packhorse.snapshots.snapshot import (
    MANIFESTS,
    AppliedSequence,
    ContentSnapshot,
    InvalidSnapshot,
    Part,
    PartChanges,
    manifest_key,
    manifest_key_of,
    new_id,
    part_key,
)
from packhorse.snapshots.store import all_of, manifest_keys, publish, read, remove, usable
from tests.harness.feed import page
from tests.harness.snapshots import a_snapshot, encoded_nodes, write_parts

ID = "0123456789abcdef"
KEY = part_key(ID, 0)


@pytest.fixture
def blobs(tmp_path: Path) -> Iterator[BlobStore]:
    store = open_blobs(str(tmp_path / "blobs"))
    yield store
    store.close()


def pages(count: int) -> list[Node]:
    return [page(f"/site/n{number:05d}", number) for number in range(count)]


def made(blobs: BlobStore, snapshot_id: str = "", **fields: Any) -> ContentSnapshot:
    snapshot_id = snapshot_id or new_id()
    snapshot = a_snapshot(write_parts(pages(25), blobs, snapshot_id), snapshot_id, **fields)
    publish(snapshot, blobs)
    return snapshot


def test_nodes_come_back_part_by_part(blobs: BlobStore) -> None:
    snapshot = made(blobs)
    assert [part.nodes for part in snapshot.parts] == [10, 10, 5]
    assert [n for part in snapshot.parts for n in read_part(part, blobs)] == pages(25)
    empty = write_part(iter(()), part_key(ID, 7), blobs)
    assert list(read_part(empty, blobs)) == []


def test_a_part_may_be_stored_again_but_not_differently(blobs: BlobStore) -> None:
    part = write_part(encoded_nodes(pages(3)), KEY, blobs)
    assert write_part(encoded_nodes(pages(3)), KEY, blobs) == part
    with pytest.raises(BlobCorrupt, match="new snapshot id"):
        write_part(encoded_nodes(pages(4)), KEY, blobs)


def test_what_is_not_in_path_order_is_neither_written_nor_read(blobs: BlobStore) -> None:
    twice = [page("/a"), page("/a")]
    for nodes in (twice, [page("/b"), page("/a")]):
        with pytest.raises(PackageCorrupt, match="in order"):
            write_part(encoded_nodes(nodes), KEY, blobs)
    assert blobs.head(KEY) is None
    part = stored(blobs, b"".join(write_nodes(twice)), nodes=2)
    with pytest.raises(PackageCorrupt, match="in order"):
        list(read_part(part, blobs))


def stored(blobs: BlobStore, content: bytes, **promised: Any) -> Part:
    """Store content as a part that promises what is true, but for `promised`."""
    written = blobs.put(KEY, [compress(content)])
    part = Part(KEY, written.sha256, written.length, len(content), 2)
    return dataclasses.replace(part, **promised)


@pytest.mark.parametrize(
    "promised",
    [
        {"sha256": "0" * 64},
        {"length": 5},
        {"length": 5_000},
        {"content_length": 5},
        {"content_length": 5_000},
        {"nodes": 1},
        {"nodes": 3},
    ],
)
def test_r30_a_part_that_breaks_a_promise_is_corrupt(
    blobs: BlobStore, promised: dict[str, Any]
) -> None:
    content = b"".join(write_nodes([page("/a"), page("/b")]))
    assert len(list(read_part(stored(blobs, content), blobs))) == 2
    with pytest.raises((BlobCorrupt, PackageCorrupt)):
        list(read_part(stored(blobs, content, **promised), blobs))


def test_r30_a_part_that_unpacks_to_more_is_given_up_early(blobs: BlobStore) -> None:
    part = stored(blobs, bytes(50_000_000), content_length=1_000)
    assert part.length < 10_000
    with pytest.raises(PackageCorrupt):
        list(read_part(part, blobs))
    with pytest.raises(PackageRefused):
        list(read_part(part, blobs, PackageLimits(content_bytes=999)))


def test_a_part_that_is_gone_is_missing(blobs: BlobStore) -> None:
    part = write_part(encoded_nodes(pages(1)), KEY, blobs)
    blobs.delete(KEY)
    with pytest.raises(BlobMissing):
        list(read_part(part, blobs))


def test_the_newest_offset_comes_first(blobs: BlobStore) -> None:
    offsets = [7, 100, 3, 2**62, 99]
    by_offset = {offset: made(blobs, offset=offset) for offset in offsets}
    assert list(all_of(blobs)) == [by_offset[offset] for offset in sorted(offsets, reverse=True)]
    assert manifest_keys(blobs)[0] == manifest_key(by_offset[2**62])


def found(blobs: BlobStore, **wanted: Any) -> list[ContentSnapshot]:
    requested = {
        "journal_id": "journal",
        "publisher_agents": ("main",),
        "subscribers": ("sub", ""),
        "at_least": 0,
    }
    return list(usable(blobs, **(requested | wanted)))


def test_only_what_a_subscriber_may_have_is_usable_the_newest_first(blobs: BlobStore) -> None:
    assert found(blobs) == []
    old, new = made(blobs, offset=3), made(blobs, offset=5)
    made(blobs, offset=9, journal_id="created anew")
    made(blobs, offset=9, subscriber="other")
    more = made(blobs, offset=9, publisher_agents=("main", "bulk"))
    assert found(blobs) == [new, old]
    assert found(blobs, at_least=5) == [new]
    assert found(blobs, at_least=6) == []
    assert found(blobs, publisher_agents=["bulk", "main"]) == [more]
    own = made(blobs, offset=4, subscriber="sub")
    assert found(blobs) == [new, own, old]
    assert found(blobs, subscribers=("sub",)) == [own]
    remove(own, blobs)
    remove(new, blobs)
    assert found(blobs) == [old]


def test_publishing_again_is_a_success_and_differently_is_none(blobs: BlobStore) -> None:
    snapshot = made(blobs, ID)
    publish(snapshot, blobs)
    with pytest.raises(BlobCorrupt, match="another manifest"):
        publish(dataclasses.replace(snapshot, made_ms=2), blobs)


WRONG: list[dict[str, Any]] = [
    {"id": "manifest"},
    {"id": "AB" * 8},
    {"offset": -1},
    {"offset": 2**63},
    {"nodes": 1},
    {"journal_id": ""},
    {"journal_id": "x\0"},
    {"package_id": "x" * 201},
    {"publisher_agents": ()},
    {"publisher_agents": ("a b",)},
    {"subscriber": "../etc"},
    {"made_ms": 1.5},
    {"sequences": (AppliedSequence("main", "bell\x07", 1, 1, 1),)},
    {"sequences": (AppliedSequence("main", "x" * 201, 1, 1, 1),)},
]


@pytest.mark.parametrize("fields", WRONG, ids=str)
def test_what_nobody_would_read_is_not_published(blobs: BlobStore, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidSnapshot):
        publish(
            a_snapshot([], fields.get("id", ID), **fields | {"id": fields.get("id", ID)}), blobs
        )
    assert list(blobs.list("")) == []


def part(number: int, **fields: Any) -> Part:
    return dataclasses.replace(Part(part_key(ID, number), "0" * 64, 1, 1, 0), **fields)


def changes(number: int, **fields: Any) -> PartChanges:
    made = PartChanges(part_key(ID, number), "1" * 64, 1, 1, 1, 0, 1)
    return dataclasses.replace(made, **fields)


@pytest.mark.parametrize(
    "parts",
    [
        [part(0), part(0)],
        [part(0, key="binaries/00/" + "0" * 64)],
        [part(0, key=manifest_key_of(0, ID))],
        [part(0, key=KEY.replace("00000", "٠٠٠٠٠"))],
        [part(0, content_length=2**60)],
        [part(0, sha256="0" * 63)],
        [part(0), part(1, changes=changes(0))],
        [part(0, changes=changes(1, key=manifest_key_of(0, ID)))],
        [part(0, changes=changes(1, content_length=2**60))],
        [part(0, changes=changes(1, entries=2**60))],
        [part(0, changes=changes(1, nodes=1))],
    ],
    ids=str,
)
def test_parts_are_those_of_snapshots_each_once(parts: list[Part]) -> None:
    with pytest.raises(InvalidSnapshot):
        snapshots_store.encode(a_snapshot(parts, ID, nodes=0))
    another = part(0, key=part_key("f" * 16, 0))
    alike = [part(5), another, part(0, changes=changes(1))]
    assert snapshots_store.decode(snapshots_store.encode(a_snapshot(alike, ID))).parts == (*alike,)


def test_unreadable_and_foreign_manifests_are_left_out_with_a_warning(
    blobs: BlobStore, caplog: pytest.LogCaptureFixture
) -> None:
    good = made(blobs, ID, offset=1)
    data = snapshots_store.encode(good)
    hostile = {
        "00000000000000000009-" + "a" * 16: data,  # under another snapshot's name
        "00000000000000000008-" + "b" * 16: data.replace(b'"format":1', b'"format":2'),
        "00000000000000000007-" + "c" * 16: b"[" * 100_000,
        "00000000000000000006-" + "d" * 16: b"",
        "no-number": data,
        "00000000000000000005-" + "e" * 16: bytes(snapshots_store.MAX_MANIFEST_BYTES + 1),
    }
    for name, content in hostile.items():
        blobs.put(MANIFESTS + name, [content])
    with caplog.at_level(logging.WARNING):
        assert list(all_of(blobs)) == [good]
    assert caplog.text.count("a snapshot is unreadable") == len(hostile)
    with pytest.raises(InvalidSnapshot):
        read(MANIFESTS + "no-number", blobs)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b'"format":1', b'"format":2', "format: this must be 1"),
        (b'"format":1', b'"format":1,"more":1', "more: this is not known here"),
        (b'"made_ms":1', b'"made_ms":"1"', "snapshot.made_ms: this must be an integer"),
        (b'{"format"', b'{"format', "the manifest: this is no JSON"),
    ],
)
def test_a_refused_manifest_is_reported_in_our_words(
    before: bytes, after: bytes, said: str
) -> None:
    data = snapshots_store.encode(a_snapshot([], ID, made_ms=1))
    assert before in data
    with pytest.raises(InvalidSnapshot) as reported:
        snapshots_store.decode(data.replace(before, after, 1))
    assert str(reported.value) == said


@given(st.binary(max_size=300))
def test_r30_a_manifest_of_any_bytes_is_refused_in_one_way(data: bytes) -> None:
    with pytest.raises(InvalidSnapshot):
        snapshots_store.decode(data)


def test_no_part_lies_where_manifests_are_looked_for() -> None:
    for number in (0, 256, 99_999):
        assert not part_key(new_id(), number).startswith(MANIFESTS)
    for wrong in (-1, 100_000):
        with pytest.raises(InvalidSnapshot):
            part_key(ID, wrong)
