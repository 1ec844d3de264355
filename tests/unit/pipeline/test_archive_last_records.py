"""R24: a restored journal that has grown again is known by the last records that were archived."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from packhorse.messaging.api import Journal, Record, TopicSpec
from packhorse.messaging.open import open_journal
from packhorse.wire.record import Encoded
from packhorse_services.pipeline.archive import places as at
from packhorse_services.pipeline.archive import start
from packhorse_services.pipeline.archive.reading import LATEST_MS, as_batch
from packhorse_services.pipeline.archive.start import require_same_records
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import prepare
from packhorse_services.pipeline.storage.location import Location
from tests.harness.archive import append
from tests.harness.journals import fresh_name

TOPIC = "it's-package"
KEYS = ("s-0", "s-1", "s-2", "s-3")
YEAR_10000 = 253_402_300_800_000
"""More than Python shows."""


@pytest.fixture
def journal() -> Iterator[Journal]:
    """A journal whose records differ in their headers only."""
    with ExitStack() as stack:
        made = open_journal(f"memory://{fresh_name()}", client_name="tests")
        stack.enter_context(closing(made))
        made.create_topics([TopicSpec(TOPIC, 2)])
        more(made, "first")
        yield made


def more(journal: Journal, word: str) -> None:
    append(journal, [(TOPIC, key, Encoded({"w": word.encode()}, b"same")) for key in KEYS])


def archived(folder: Path, records: Sequence[Record]) -> Location:
    location = Location.parse(str(folder))
    prepare(location)
    rows = pa.Table.from_batches([as_batch(records, "j")])
    write_deltalake(location.delta_uri(tables.BRONZE), rows, mode="append")
    return location


class Foreign:
    """A journal whose senders have all said one time."""

    def __init__(self, journal: Journal, time_ms: int) -> None:
        self._journal, self._time_ms = journal, time_ms

    def read_at(self, topic: str, offset: int, partition: int = 0) -> Record | None:
        found = self._journal.read_at(topic, offset, partition)
        return found and replace(found, time_ms=self._time_ms)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


def all_of(journal: Journal) -> list[Record]:
    return [
        record
        for number in range(2)
        for offset in range(journal.bounds(TOPIC, number).next)
        if (record := journal.read_at(TOPIC, offset, number))
    ]


def require(location: Location, journal: Journal) -> None:
    held = start.held_by_bronze(location)
    require_same_records(location, journal, held.newest, at.extent_of(journal, [TOPIC]))


def test_a_journal_that_went_on_is_the_same(journal: Journal, tmp_path: Path) -> None:
    location = archived(tmp_path, all_of(journal))
    more(journal, "later")
    require(location, journal)


@pytest.mark.parametrize("changed", ["headers", "time_ms"])
def test_another_last_record_is_refused(journal: Journal, tmp_path: Path, changed: str) -> None:
    *before, last = all_of(journal)
    other = {"headers": {"w": b"second"}, "time_ms": last.time_ms - 1}[changed]
    location = archived(tmp_path, [*before, replace(last, **{changed: other})])  # type: ignore[arg-type]
    place = f"{TOPIC}/{last.partition} has another record at offset {last.offset}"
    with pytest.raises(TaskRefused, match=f"{place} .* backup .* PACKHORSE_TABLES_URL"):
        require(location, journal)
    journal.truncate(TOPIC, last.offset + 1, last.partition)
    require(location, journal)


@pytest.mark.parametrize("time_ms", [-5_000, LATEST_MS + 5_000, YEAR_10000])
def test_a_time_that_is_archived_as_the_nearest_that_fits_is_the_same(
    journal: Journal, tmp_path: Path, time_ms: int
) -> None:
    foreign: Any = Foreign(journal, time_ms)
    location = archived(tmp_path, all_of(foreign))
    require(location, foreign)
    with pytest.raises(TaskRefused, match="has another record"):
        require(location, journal)


def test_nothing_archived_is_nothing_to_compare(journal: Journal, tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    prepare(location)
    require(location, journal)
