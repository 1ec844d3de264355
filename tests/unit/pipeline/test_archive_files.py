"""The files that tasks write: complete, partitioned as their table, and of bounded memory."""

import random
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from packhorse.messaging.api import Record
from packhorse_services.pipeline.archive.reading import as_batch
from packhorse_services.pipeline.errors import Overtaken
from packhorse_services.pipeline.storage import arrow_files, tables
from packhorse_services.pipeline.storage import parquet as made
from packhorse_services.pipeline.storage.compaction import rows_in
from packhorse_services.pipeline.storage.delta import BatchMark, append, prepare, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import File, Files
from packhorse_services.pipeline.storage.queries import RELATION, rows

DAY_MS = 24 * 3600 * 1000
FIRST = date(2024, 5, 1)
FIRST_MS = int(datetime(2024, 5, 1, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def location(tmp_path: Path) -> Location:
    found = Location.parse(str(tmp_path / "with a space"))
    prepare(found)
    return found


def record(offset: int, topic: str = "t", *, day: int = 0, size: int = 10) -> Record:
    headers = {"name": b"n%d" % offset} if offset % 2 else {}
    value = random.Random(offset).randbytes(size)
    return Record(topic, 0, offset, FIRST_MS + day * DAY_MS, None, headers, value)


def written(location: Location, *batches: list[Record], **bounds: int) -> list[File]:
    files = Files(location, **bounds)
    for batch in batches:
        files.add(tables.BRONZE, as_batch(batch, "j"))
    return files.close()


def added(location: Location, files: list[File], batch: int = 0) -> None:
    append(location, tables.BRONZE, BatchMark(batch, batch + 1), [file.action for file in files])


def held(location: Location) -> list[tuple[str, date, int, bytes]]:
    query = f'SELECT topic, day, "offset", value FROM {RELATION}'
    found = rows(stored(location, tables.BRONZE), query)
    return sorted((row["topic"], row["day"], row["offset"], bytes(row["value"])) for row in found)


def test_every_row_is_in_a_file_of_its_topic_and_day(location: Location) -> None:
    records = [record(n, "ab"[n % 2], day=n // 5) for n in range(10)]
    files = written(location, records)
    assert sorted((one.partition["topic"], one.partition["day"], one.rows) for one in files) == [
        ("a", "2024-05-01", 3),
        ("a", "2024-05-02", 2),
        ("b", "2024-05-01", 2),
        ("b", "2024-05-02", 3),
    ]
    added(location, files)
    assert held(location) == sorted(
        (one.topic, date(2024, 5, 1 + one.offset // 5), one.offset, one.value) for one in records
    )


def test_a_files_statistics_let_readers_pass_it_over(location: Location) -> None:
    files = written(location, [record(7), record(8)], [record(9)])
    added(location, files)
    (found,) = pa.table(stored(location, tables.BRONZE).get_add_actions(flatten=True)).to_pylist()
    assert (found["num_records"], found["min.offset"], found["max.offset"]) == (3, 7, 9)
    assert found["size_bytes"] == files[0].size


def test_what_no_commit_adds_is_not_in_the_table(location: Location) -> None:
    written(location, [record(1)])
    assert held(location) == []


def test_a_batch_is_taken_once(location: Location) -> None:
    added(location, written(location, [record(0)]), batch=3)
    added(location, written(location, [record(0)]), batch=3)
    assert [offset for _, _, offset, _ in held(location)] == [0]


@pytest.mark.parametrize("batch", [0, 2])
def test_who_begins_behind_what_a_table_has_is_refused(location: Location, batch: int) -> None:
    added(location, written(location, [record(0)]), batch=3)
    with pytest.raises(Overtaken, match="another run of the archive has gone on with bronze"):
        append(location, tables.BRONZE, BatchMark(batch, batch + 7))


def test_r30_no_more_than_a_group_of_rows_is_held(location: Location) -> None:
    files = Files(location, group_bytes=4_000)
    for number in range(200):
        files.add(tables.BRONZE, as_batch([record(number, "ab"[number % 2], size=1_000)], "j"))
        assert sum(sum(rows.nbytes for rows in one.held) for one in files._open.values()) < 4_000
    added(location, files.close())
    assert len(held(location)) == 200


def test_r30_no_more_than_some_files_are_open_whatever_the_number_of_days(
    location: Location,
) -> None:
    files = Files(location, open_files=8)
    for number in range(60):
        days = ((number, 0), (500 + number, 1 + number))  # one in all batches, and one of its own
        files.add(tables.BRONZE, as_batch([record(n, day=day) for n, day in days], "j"))
        assert len(files._open) <= 8
        held_now = sum(sum(rows.nbytes for rows in one.held) for one in files._open.values())
        assert files._held == held_now
    finished = files.close()
    assert sorted(one.rows for one in finished) == [1] * 60 + [60]
    added(location, finished)
    assert len(held(location)) == 120


def test_a_large_file_ends_and_an_idle_one_too(location: Location) -> None:
    days = [[record(n, day=n // 20, size=1_000)] for n in range(60)]
    files = written(location, *days, group_bytes=4_000, file_bytes=10_000)
    assert len(files) > 3
    assert max(one.rows for one in files) < 20
    added(location, files)
    assert [offset for _, _, offset, _ in held(location)] == list(range(60))


def test_r30_rows_are_read_a_bounded_number_of_bytes_at_a_time(location: Location) -> None:
    """Also of values that compress well, and across the row groups of a file."""
    records = [Record("t", 0, n, FIRST_MS, None, {}, bytes(10_000)) for n in range(100)]
    fives = (records[n : n + 5] for n in range(0, 100, 5))
    (file,) = written(location, *fives, group_bytes=100_000)
    shape = made.columns(tables.BRONZE)
    path = arrow_files.path(location, f"bronze/{file.path}")
    with fs.LocalFileSystem().open_input_file(path) as raw:
        read = list(rows_in(raw, {"topic": "t", "day": FIRST}, shape, 1_000, 100_000))
    assert sum(batch.num_rows for batch in read) == 100
    assert max(batch.nbytes for batch in read) < 200_000


def test_files_that_nobody_finished_are_let_go(location: Location) -> None:
    files = Files(location)
    files.add(tables.BRONZE, as_batch([record(1)], "j"))
    (unfinished,) = files._open.values()
    files.abandon()
    assert unfinished.sink.closed
    assert held(location) == []


def test_a_file_that_cannot_be_finished_keeps_no_other_one_open(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(location)
    files.add(tables.BRONZE, as_batch([record(1, "a"), record(2, "b")], "j"))
    broken, other = files._open.values()

    def refuse() -> None:
        raise pa.ArrowInvalid("no more rows fit")

    monkeypatch.setattr(broken.writer, "close", refuse)
    files.abandon()
    assert other.sink.closed
