"""The list of a part's nodes, and changes that are merged into a part; no Spark."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.blobs.filesystem import FilesystemBlobs
from packhorse.content.node import Binary, Node
from packhorse.packages.compression import compress
from packhorse.packages.limits import PackageCorrupt
from packhorse.snapshots.parts import Frame, nodes_of, stored_frames, write_part
from packhorse.snapshots.snapshot import Part, is_part, manifest_key_of, node_list_key, part_key
from packhorse_services.pipeline.history.node_lists import (
    NodeList,
    listed,
    listed_frames,
    made_rows,
    measured,
    store_list,
)
from packhorse_services.pipeline.snapshot.continuing import slots
from packhorse_services.pipeline.snapshot.merging import (
    Change,
    Changes,
    StoredFrames,
    after_changes,
    merged,
)
from packhorse_services.pipeline.snapshot.writing import runs
from packhorse_services.pipeline.sweep.blob_scans import PARTS, StoredBodies
from packhorse_services.pipeline.sweep.work import FindingKind, Found
from tests.harness.feed import page

ID = "0123456789abcdef"
PATHS = st.sampled_from([f"/{name}" for name in ("a", "a-b", "a/b", "ab", "b", "é", "\U0001f600")])
CONTENT = st.dictionaries(PATHS, st.integers(0, 9))
CHANGES = st.dictionaries(PATHS, st.none() | st.integers(10, 19))


@given(CONTENT, CHANGES)
def test_changes_are_merged_by_path(before: dict[str, int], changes: dict[str, int | None]) -> None:
    held = (measured(page(path, before[path])) for path in sorted(before))
    now = {path: number for path, number in {**before, **changes}.items() if number is not None}
    wanted = [measured(page(path, now[path])) for path in sorted(now)]
    assert list(merged(held, told(changes))) == wanted


def told(changes: dict[str, int | None]) -> list[Change]:
    given = [(path, changes[path]) for path in sorted(changes)]
    return [Change(at, None if now is None else measured(page(at, now))) for at, now in given]


@given(CONTENT, CHANGES, st.integers(1, 60), st.integers(1, 4))
def test_frames_without_changes_stay_as_they_are_stored(
    before: dict[str, int], changes: dict[str, int | None], frame_bytes: int, together: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        blobs = FilesystemBlobs(Path(folder))
        held = [page(path, before[path]) for path in sorted(before)]
        part = stored(blobs, held, frame_bytes)
        rows = listed(part, blobs)
        assert rows is not None
        frames = _each(StoredFrames(part, rows, blobs))
        after = list(after_changes(part, Changes(told(changes)), blobs, frame_bytes, together))
        blobs.delete(node_list_key(part))
        anew = list(after_changes(part, Changes(told(changes)), blobs, frame_bytes, together))
    wanted = list(merged(map(measured, held), told(changes)))
    for listing in (after, anew):
        assert [node for one in listing for node in nodes_of(one.frame)] == [
            one.node for one in wanted
        ]
        assert pa.concat_tables([rows[:0], *(one.rows for one in listing)]).drop_columns(
            "end"
        ).to_pylist() == [
            {"path": node.path, "size": size, "hash": number} for node, size, number in wanted
        ]
    whole = b"".join(one.frame.data for one in after)
    assert sum(frame.data not in whole for frame in frames) <= len(changes)


def test_what_has_not_changed_can_be_cut_nevertheless(blobs: FilesystemBlobs) -> None:
    part = stored(blobs, [page(f"/{at:03}", at) for at in range(100)])
    apart = [*after_changes(part, Changes([]), blobs, 60, 1)]
    together = [*after_changes(part, Changes([]), blobs, 60, 3)]
    assert len(together) == -(-len(apart) // 3)
    assert [node for one in together for node in nodes_of(one.frame)] == [
        node for one in apart for node in nodes_of(one.frame)
    ]


def _each(frames: StoredFrames) -> list[Frame]:
    found = []
    while frames.left:
        found.append(frames.take(1).frame)
    frames.end()
    return found


@given(st.lists(st.integers(1, 300), max_size=20), st.integers(1, 500))
def test_runs_hold_everything_in_its_order(sizes: list[int], limit: int) -> None:
    nodes = (measured(page(f"/{at:02}", at))._replace(size=size) for at, size in enumerate(sizes))
    frames = list(listed_frames(nodes, frame_bytes=1))
    cut = [list(run) for run in runs(frames, limit)]
    assert [one for run in cut for one in run] == frames
    assert all(sum(one.size for one in run) >= limit for run in cut[:-1])
    assert all(sum(one.size for one in run[:-1]) < limit for run in cut)


def test_parts_go_on_in_their_order_with_room_for_each() -> None:
    found = slots({0: 100, 2: 350, 3: 10}, 100)
    assert found is not None
    assert [(at, one.first, one.pieces) for at, one in found.items()] == [
        (0, 0, 2),
        (2, 2, 5),
        (3, 7, 2),
    ]
    assert [one.characters for one in found.values()] == [101, 88, 101]
    assert slots({0: 100, 1: 2_000}, 100) is None  # too much for one task
    assert slots(dict.fromkeys(range(40), 10), 100) is None  # many that shrank
    assert slots(dict.fromkeys(range(60_000), 100), 100) is None  # no number left


def stored(blobs: FilesystemBlobs, nodes: list[Node], frame_bytes: int = 60) -> Part:
    noted = NodeList()
    frames = listed_frames(map(measured, nodes), frame_bytes)
    part = write_part(noted.noted(frames), part_key(ID, 0), blobs)
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
    assert rows.drop_columns("end").equals(made_rows(part, blobs))
    assert rows["path"].to_pylist() == [node.path for node in nodes]
    assert len(set(rows["end"].to_pylist())) > 1
    assert rows["end"][-1].as_py() == part.length


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


def of_other_frames(rows: pa.Table) -> pa.Table:
    return rows.set_column(3, "end", [[1, 2]])


@pytest.mark.parametrize("other", [repeated, of_other_frames, lambda rows: rows.slice(0, 1)])
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


def test_a_mark_passes_lists_over(blobs: FilesystemBlobs) -> None:
    part = stored(blobs, [page("/a")])
    scan = StoredBodies(str(blobs.root), PARTS)
    listed = list(scan.listed([f"{shard:02x}" for shard in range(256)]))
    assert [blob.key for blob in listed] == [part.key]
    assert list(scan.read(iter(listed))) == [(listed[0], Found(FindingKind.READ, part.key))]


@pytest.mark.parametrize("claimed", [0, 1, 2**40])
def test_a_frame_that_claims_another_length_is_corrupt(claimed: int) -> None:
    data = bytearray(compress(b"x" * 300_000))
    assert data[4] == 0xA0  # a frame of one segment whose length takes 4 bytes (RFC 8878)
    data[4:9] = b"\xe0" + claimed.to_bytes(8, "little")
    frame = stored_frames(bytes(data), [len(data)], 1)
    assert frame.content_length == claimed
    with pytest.raises(PackageCorrupt):
        list(nodes_of(frame))
