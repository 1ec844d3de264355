"""The lists of a part's nodes and of its changes; no Spark."""

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.blobs.filesystem import FilesystemBlobs
from packhorse.content.node import Binary, Node
from packhorse.snapshots.parts import Change, read_part, write_part
from packhorse.snapshots.snapshot import (
    Part,
    PartChanges,
    is_part,
    manifest_key_of,
    node_list_key,
    part_key,
)
from packhorse_services.pipeline.history.node_lists import (
    ListedNode,
    NodeList,
    listed,
    listed_changes,
    listed_nodes,
    made_rows,
    measured,
    store_list,
)
from packhorse_services.pipeline.snapshot.continuing import slots
from packhorse_services.pipeline.snapshot.parts import (
    PartDifference,
    fits_beside,
    runs,
    stays,
    with_changes,
)
from packhorse_services.pipeline.sweep.scans import PARTS, StoredBodies
from packhorse_services.pipeline.sweep.work import FindingKind, Found
from tests.harness.feed import page

ID = "0123456789abcdef"
PATHS = st.sampled_from([f"/{name}" for name in ("a", "a-b", "a/b", "ab", "b", "é", "\U0001f600")])
CONTENT = st.dictionaries(PATHS, st.integers(0, 9))


DAYS = st.lists(st.dictionaries(PATHS, st.none() | st.integers(10, 19)), max_size=4)


@given(CONTENT, DAYS)
def test_the_changes_of_each_day_come_in_place_of_earlier_ones(
    before: dict[str, int], days: list[dict[str, int | None]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        blobs = FilesystemBlobs(Path(folder))
        part = stored(blobs, [page(path, before[path]) for path in sorted(before)])
        now: dict[str, int | None] = {**before}
        for number, day in enumerate(days, 1):
            now |= day
            nodes = [page(path, at) for path in sorted(now) if (at := now[path]) is not None]
            changes = (Change(path, measured_at(path, day[path])) for path in sorted(day))
            part = with_changes(part, changes, len(nodes), part_key(ID, number), blobs)
            assert list(read_part(part, blobs)) == nodes
            assert list(listed_nodes(part, blobs)) == [*map(measured, nodes)]
            assert listed(part, blobs) == made_rows(part, blobs)
            for file in part.files:
                blobs.delete(node_list_key(file))
                assert list(listed_nodes(part, blobs)) == [*map(measured, nodes)]
                assert listed(part, blobs) is None
            relisted(part, blobs)


def measured_at(path: str, number: int | None) -> ListedNode | None:
    return None if number is None else measured(page(path, number))


def relisted(part: Part, blobs: FilesystemBlobs) -> None:
    """Store the lists of a part again, as they are made without them."""
    noted = NodeList()
    list(noted.nodes(listed_nodes(dataclasses.replace(part, changes=None), blobs)))
    noted.store(part, blobs)
    if part.changes:
        noted = NodeList()
        list(noted.changes(listed_changes(part.changes, blobs)))
        noted.store(part.changes, blobs)


def test_changes_fit_beside_a_part_until_they_are_a_share_of_its_bytes() -> None:
    part = Part(part_key(ID, 0), "0" * 64, 1, 1_000, 10)

    def fits(number: int, part: Part, more: int, less: int = 0, characters: int = 1_000) -> bool:
        return fits_beside(number, part, PartDifference(more, less, 0), characters)

    assert [fits(0, part, more, 5) for more in (120, 121)] == [True, False]
    assert [fits(15, part, more) for more in (242, 243)] == [True, False]
    assert [fits(0, part, more, 0, 500) for more in (62, 63)] == [True, False], "of 2 bytes each"
    part = changed_since(part, 7)
    assert [fits(16, part, more) for more in (25, 26)] == [True, False]
    assert not fits(0, part, 125, 0, 0)


def test_changes_stay_beside_a_part_for_some_days() -> None:
    part, day_ms = Part(part_key(ID, 0), "0" * 64, 1, 1_000, 10), 24 * 3600 * 1000
    assert stays(0, part, 100 * day_ms)
    part = changed_since(part, 5)
    assert [stays(0, part, 5 + 16 * day_ms - more) for more in (1, 0)] == [True, False]
    assert [stays(15, part, 5 + 31 * day_ms - more) for more in (1, 0)] == [True, False]


def changed_since(part: Part, since_ms: int) -> Part:
    changes = PartChanges(part_key(ID, 1), "1" * 64, 1, 100, 2, 11, since_ms)
    return dataclasses.replace(part, changes=changes)


@given(st.lists(st.integers(1, 300), max_size=20), st.integers(1, 500))
def test_runs_hold_everything_in_its_order(sizes: list[int], limit: int) -> None:
    nodes = (measured(page(f"/{at:02}", at))._replace(size=size) for at, size in enumerate(sizes))
    every = list(nodes)
    cut = [list(run) for run in runs(every, limit)]
    assert [one for run in cut for one in run] == every
    assert all(sum(one.size for one in run) >= limit for run in cut[:-1])
    assert all(sum(one.size for one in run[:-1]) < limit for run in cut)


def test_parts_go_on_in_their_order_with_room_for_each() -> None:
    found = slots({0: 100, 2: 350, 3: 10}, 100)
    assert found is not None
    assert [(at, one.first, one.pieces, one.is_cut) for at, one in found.items()] == [
        (0, 0, 2, False),
        (2, 2, 5, True),
        (3, 7, 2, False),
    ]
    assert [one.characters for one in found.values()] == [101, 88, 101]
    assert slots({0: 100, 1: 2_000}, 100) is None  # too much for one task
    assert slots(dict.fromkeys(range(40), 10), 100) is None  # many that shrank
    assert slots(dict.fromkeys(range(60_000), 100), 100) is None  # no number left


def stored(blobs: FilesystemBlobs, nodes: list[Node]) -> Part:
    noted = NodeList()
    part = write_part(noted.nodes(map(measured, nodes)), part_key(ID, 0), blobs)
    noted.store(part, blobs)
    return part


@pytest.fixture
def blobs(tmp_path: Path) -> FilesystemBlobs:
    return FilesystemBlobs(tmp_path)


def test_a_list_says_what_the_part_says(blobs: FilesystemBlobs) -> None:
    binary = Binary("é", "ab" * 32, 1, "text/plain")
    nodes = [page("/a"), page("/a/b"), Node("/c", "page", "{}", (binary,)), page("/d"), page("/é")]
    part = stored(blobs, nodes)
    rows = listed(part, blobs)
    assert rows is not None
    assert rows.equals(made_rows(part, blobs))
    assert rows["path"].to_pylist() == [node.path for node in nodes]


@pytest.mark.parametrize(
    "data",
    [
        lambda data: data[:-1],
        lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
        lambda data: data.replace(b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfe", 1),  # zstd's own mark
        lambda data: b"",
        lambda data: b"none",
    ],
)
def test_a_damaged_list_is_none(blobs: FilesystemBlobs, data: Callable[[bytes], bytes]) -> None:
    part = stored(blobs, [page("/a"), page("/b")])
    key = node_list_key(part)
    whole = b"".join(blobs.get(key))
    blobs.delete(key)
    assert listed(part, blobs) is None
    blobs.put(key, [data(whole)])
    assert listed(part, blobs) is None


def repeated(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(0, 1), rows.slice(0, 1)])


def without_hashes(rows: pa.Table) -> pa.Table:
    return rows.drop_columns("hash")


@pytest.mark.parametrize("other", [repeated, without_hashes, lambda rows: rows.slice(0, 1)])
def test_a_list_that_does_not_fit_its_part_is_none(
    blobs: FilesystemBlobs, other: Callable[[pa.Table], pa.Table]
) -> None:
    part = stored(blobs, [page("/a"), page("/b")])
    rows = listed(part, blobs)
    blobs.delete(node_list_key(part))
    store_list(other(rows), part, blobs)
    assert listed(part, blobs) is None


def test_only_parts_are_parts(blobs: FilesystemBlobs) -> None:
    part = stored(blobs, [page("/a")])
    assert is_part(part.key)
    assert not is_part(node_list_key(part))
    assert not is_part(manifest_key_of(7, ID))


def test_a_mark_reads_changes_and_passes_lists_over(blobs: FilesystemBlobs) -> None:
    part = stored(blobs, [page("/a")])
    removed = Change("/a", None)
    part = with_changes(part, [removed], 0, part_key(ID, 256), blobs)
    scan = StoredBodies(str(blobs.root), PARTS)
    listed = list(scan.listed([f"{shard:02x}" for shard in range(256)]))
    keys = [file.key for file in part.files]
    assert [blob.key for blob in listed] == keys
    found = [(one, Found(FindingKind.READ, one.key)) for one in listed]
    assert list(scan.read(iter(listed))) == found
