"""A batch is killed at each of its commits and done again: every table has its rows once."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from packhorse.messaging.api import Record
from packhorse.wire.topics import Topics
from packhorse_services.pipeline.archive.query import commit
from packhorse_services.pipeline.archive.reading import as_batch
from packhorse_services.pipeline.archive.silver import Decoder
from packhorse_services.pipeline.errors import Overtaken
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import SILVER, BatchMark, is_decoded, prepare, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import File, Files
from packhorse_services.pipeline.storage.queries import RELATION, rows
from tests.harness.archive import of_everything

TOPICS = Topics()
POINTS = ["before bronze", *(f"after {table}" for table in (tables.BRONZE, *SILVER))]
"""Between what is after one table and before the next one nothing happens."""


class Killed(Exception):
    """What a kill looks like from inside."""


@pytest.fixture(scope="module")
def first_batch(tmp_path_factory: pytest.TempPathFactory) -> Location:
    made = Location.parse(str(tmp_path_factory.mktemp("tables")))
    prepare(made)
    commit(made, BatchMark(0, 10), written(made, 0), lambda _: None)
    return made


@pytest.fixture
def location(first_batch: Location, tmp_path: Path) -> Location:
    """A copy of tables with one batch."""
    shutil.copytree(first_batch.base, tmp_path / "tables")
    return Location.parse(str(tmp_path / "tables"))


def written(location: Location, *numbers: int) -> list[File]:
    """Write the files of a batch, as its tasks do."""
    files = Files(location)
    decoder = Decoder(TOPICS, "", "")
    messages = list(of_everything(numbers, TOPICS))
    messages.append((TOPICS.package, None, messages[1][2]))  # which nobody decodes there
    with decoder.copying() as bodies:
        for offset, (topic, key, one) in enumerate(messages, numbers[0] * 100):
            record = Record(topic, 0, offset, 1_700_000_000_000, key, one.headers, one.value)
            batch = as_batch([record], "j")
            files.add(tables.BRONZE, batch)
            for table, found in decoder.decode(batch, bodies).items():
                files.add(table, found)
    return files.close()


def counted(location: Location) -> dict[str, int]:
    """Return how many rows each table has; fails when one is there twice."""
    found = {}
    for table in (tables.BRONZE, *SILVER):
        query = f'SELECT "offset" FROM {RELATION}'
        offsets = Counter(row["offset"] for row in rows(stored(location, table), query))
        assert set(offsets.values()) <= {1}, f"a record is in {table} twice"
        found[table] = len(offsets)
    return found


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_batch_is_done_again_once(location: Location, point: str) -> None:
    before = counted(location)
    assert set(before.values()) == {1, 7}

    def kill(here: str) -> None:
        if here == point:
            raise Killed

    mark = BatchMark(10, 20)
    with pytest.raises(Killed):
        commit(location, mark, written(location, 1), kill)
    commit(location, mark, written(location, 1), lambda _: None)
    assert counted(location) == {table: 2 * count for table, count in before.items()}
    assert is_decoded(location)


def test_of_two_runs_that_went_on_differently_one_is_refused(location: Location) -> None:
    before = counted(location)
    with pytest.raises(Overtaken):
        commit(location, BatchMark(0, 15), written(location, 0, 1), lambda _: None)
    assert counted(location) == before


def test_a_batch_without_a_record_is_noted(location: Location) -> None:
    before = counted(location)
    commit(location, BatchMark(10, 20), [], lambda _: None)
    assert is_decoded(location)
    assert counted(location) == before
