"""Phase 1 of a bulk distribution: parts of one snapshot, whose sum is the plain deep package."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import LiteralString

import pytest
from psycopg.sql import SQL
from pyspark.sql import SparkSession

from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node, is_within
from packhorse.content.tree import FOLDER
from packhorse.db.connect import connect
from packhorse.packages.body import unpack
from packhorse.packages.build import PathMissing
from packhorse_services.pipeline.bulk import prepare as bulk_prepare
from packhorse_services.pipeline.bulk.cancelling import BulkStopped
from packhorse_services.pipeline.bulk.export import BULK_PARTS, Meter, Packing
from packhorse_services.pipeline.bulk.prepare import prepare
from packhorse_services.pipeline.bulk.state import BulkState, Export, StoredPart
from packhorse_services.pipeline.errors import TaskFailed
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.tables import bulk_parts
from tests.harness.borrowing import borrowed
from tests.harness.bulk import TOP, imported, message_of, odd_nodes, plain_package, written
from tests.harness.depth import at_depth
from tests.harness.postgres import Databases, end_sessions
from tests.harness.table_page import columns
from tests.harness.waiting import eventually

pytestmark = pytest.mark.spark


class Bulk:
    """One author, one blob store, one place for tables."""

    def __init__(self, spark: SparkSession, database_url: str, folder: Path) -> None:
        self.spark, self.url = spark, database_url
        self.location = Location.parse(str(folder / "tables"))
        self.blobs_url = str(folder / "blobs")
        self.blobs = open_blobs(self.blobs_url)

    def export(self, bulk_id: str, deep_path: str = TOP, nodes: int = 200) -> Export:
        return Export(bulk_id, deep_path, self.url, self.blobs_url, nodes, 64 * 1024**2)

    def prepare(self, bulk_id: str, deep_path: str = TOP, nodes: int = 200) -> list[StoredPart]:
        prepare(
            lambda: self.spark, self.location, self.export(bulk_id, deep_path, nodes), lambda: None
        )
        return self.parts(bulk_id)

    def parts(self, bulk_id: str) -> list[StoredPart]:
        return list(BulkState(self.location, bulk_id).parts(after=-1))

    def paths_of(self, part: StoredPart) -> list[str]:
        return [node.path for node in unpack(message_of(part), self.blobs)]


@pytest.fixture
def bulk(spark: SparkSession, database_url: str, tmp_path: Path) -> Bulk:
    written(database_url, odd_nodes())
    return Bulk(spark, database_url, tmp_path)


def test_parts_over_stale_content_are_what_a_plain_deep_distribute_gives(
    bulk: Bulk, databases: Databases
) -> None:
    parts = bulk.prepare("huge", nodes=60)
    assert len(parts) > 5
    assert [part.number for part in parts] == list(range(len(parts)))
    assert [part.range_from for part in parts[1:]] == [part.range_to for part in parts[:-1]]
    plain = plain_package(bulk.url, bulk.blobs)
    stale = [
        Node(f"{TOP}/flat/12", "old", '{"stale": true}'),
        Node(f"{TOP}/flat/12/gone", "old"),
        Node(f"{TOP}/zzz/gone", "old"),
        Node("/content/huge-2", "kept", '{"mine": 1}'),
        Node("/content/huge0/kept", "kept"),
    ]
    hashes = set()
    for packages in ([message_of(part) for part in parts], [plain]):
        url = databases.new("subscriber")
        written(url, stale)
        hashes.add(imported(url, packages, bulk.blobs))
    assert len(hashes) == 1


def test_every_node_is_in_the_part_of_its_range_and_sorted(bulk: Bulk) -> None:
    found: list[str] = []
    for part in bulk.prepare("sorted", nodes=97):
        paths = bulk.paths_of(part)
        assert len(paths) == part.node_count <= 97
        found += paths
    assert found == sorted(found, key=str.encode)
    wanted = {node.path for node in odd_nodes() if is_within(node.path, TOP)}
    assert set(found) == wanted | {f"{TOP}/flat", f"{TOP}/odd"}
    table = bulk.spark.read.format("delta").load(bulk.location.spark_path(bulk_parts("sorted")))
    assert list(columns(table.schema)) == list(columns(BULK_PARTS))


def test_a_part_may_be_a_single_node_and_one_part_may_be_all(bulk: Bulk) -> None:
    chain = TOP + "".join(f"/d{depth}" for depth in range(55))
    assert [part.node_count for part in bulk.prepare("one", chain, nodes=1)] == [1] * 6
    whole = bulk.prepare("whole", chain)
    assert [(part.range_from, part.range_to, part.node_count) for part in whole] == [("", "", 6)]


def test_a_path_that_is_not_there_leaves_nothing(bulk: Bulk) -> None:
    with pytest.raises(PathMissing):
        bulk.prepare("missing", "/content/hu")
    assert BulkState(bulk.location, "missing").prepared() is None


def cancelled(_: Bulk) -> None:
    raise BulkStopped("cancelled")


def ended_by_the_database(bulk: Bulk) -> None:
    with borrowed(bulk.url) as connection:
        end_sessions(connection, "packhorse-pipeline")


@pytest.mark.parametrize(
    ("happens", "error", "said"),
    [
        (cancelled, BulkStopped, "cancelled"),
        (ended_by_the_database, TaskFailed, "run it again"),
    ],
)
def test_an_export_that_is_ended_in_the_middle_leaves_nothing(
    bulk: Bulk, happens: Callable[[Bulk], None], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        prepare(
            lambda: bulk.spark,
            bulk.location,
            bulk.export("ended", nodes=10),
            lambda: happens(bulk),
        )
    assert BulkState(bulk.location, "ended").prepared() is None
    assert len(bulk.prepare("ended", f"{TOP}/odd")) == 1


def test_of_two_exports_under_one_id_the_first_one_counts(bulk: Bulk) -> None:
    others: list[StoredPart] = []

    def start() -> SparkSession:
        others.extend(bulk.prepare("twice", nodes=100))
        return bulk.spark

    with pytest.raises(TaskFailed, match="run it again"):
        prepare(start, bulk.location, bulk.export("twice"), lambda: None)
    assert bulk.parts("twice") == others != []


@pytest.fixture
def rewriting(database_url: str) -> Iterator[None]:
    """Somebody rewrites the subtree all the time: each commit has one generation everywhere."""
    stop = threading.Event()

    def write() -> None:
        with closing(connect(database_url, "tests")) as connection:
            generation = 0
            while not stop.is_set():
                generation += 1
                connection.execute("UPDATE content.node SET type = %s", (f"g{generation}",))
                if generation % 2:
                    connection.execute("DELETE FROM content.node WHERE path > %s", (f"{TOP}/odd",))
                else:
                    connection.execute(
                        "INSERT INTO content.node SELECT %s || n, %s, '{}', '{}' "
                        "FROM generate_series(1, 50) AS n",
                        (f"{TOP}/odd/new", f"g{generation}"),
                    )
                connection.commit()

    writer = threading.Thread(target=write)
    writer.start()
    yield
    stop.set()
    writer.join()


def types_stored(bulk: Bulk) -> int:
    """Return how many types nodes have: one, once a generation is everywhere."""
    with closing(connect(bulk.url, "tests")) as connection:
        row = connection.execute("SELECT count(DISTINCT type) FROM content.node").fetchone()
    assert row is not None
    return int(row[0])


def generations(bulk: Bulk, parts: list[StoredPart]) -> set[str]:
    return {node.type for part in parts for node in unpack(message_of(part), bulk.blobs)}


@pytest.mark.usefixtures("rewriting")
def test_r6_all_parts_show_one_snapshot_while_somebody_writes(bulk: Bulk) -> None:
    eventually(lambda: types_stored(bulk) == 1, what="the first generation is everywhere")
    for number in range(at_depth(2, 1)):
        assert len(generations(bulk, bulk.prepare(f"written{number}", nodes=50))) == 1


@pytest.mark.parametrize("change", ["type = 'new'", "path = path || '/moved'"])
@pytest.mark.parametrize("broken", [False, pytest.param(True, marks=pytest.mark.proof)])
def test_r6_what_is_written_after_the_plan_is_not_seen(
    bulk: Bulk, monkeypatch: pytest.MonkeyPatch, change: LiteralString, broken: bool
) -> None:
    """And a build whose executors see what is there now is caught by the same check."""
    before = {(node.path, node.type) for node in odd_nodes() if is_within(node.path, TOP)}
    before |= {(f"{TOP}/flat", FOLDER), (f"{TOP}/odd", FOLDER)}

    def written_meanwhile(export: Export, snapshot: str, meter: Meter) -> Packing:
        with closing(connect(bulk.url, "tests")) as connection:
            connection.execute(SQL("UPDATE content.node SET " + change + " WHERE path ~ '[0-9]$'"))
            connection.commit()
        return Packing(export, "" if broken else snapshot, meter)

    monkeypatch.setattr(bulk_prepare, "Packing", written_meanwhile)
    try:
        parts = bulk.prepare("later")
    except TaskFailed as error:
        seen_before = "another snapshot" not in str(error) and "is not in part" not in str(error)
    else:
        nodes = [node for part in parts for node in unpack(message_of(part), bulk.blobs)]
        seen_before = {(node.path, node.type) for node in nodes} == before
    assert seen_before is not broken
