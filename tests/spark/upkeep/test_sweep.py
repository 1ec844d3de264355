"""Mark and sweep with Spark: its tables, a sweep that is killed, an append at the same time."""

import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from packhorse.blobs.api import StoredBlob, package_key
from packhorse.errors import PackhorseError
from packhorse.packages.body import pack
from packhorse_services.pipeline.errors import NotYet, TaskFailed, TaskRefused
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.sweep import frames
from packhorse_services.pipeline.sweep.report import MarkState, SweepRemoval, Totals
from packhorse_services.pipeline.sweep.spark_report import SparkReport
from tests.harness.noise import large_node
from tests.harness.postgres import Databases
from tests.harness.sweep import Yard
from tests.harness.waiting import eventually

pytestmark = pytest.mark.spark


@pytest.fixture
def yard(databases: Databases, tmp_path: Path) -> Iterator[Yard]:
    journal = databases.new("journal")
    made = Yard(databases.new("author"), databases.new("sub"), tmp_path / "blobs", journal)
    yield made
    made.close()


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path / "tables"))


def test_r22_which_blobs_go(spark: SparkSession) -> None:
    blobs = spark.createDataFrame(
        [
            *[("binaries/aa/1", 1, 10), ("binaries/aa/2", 2, 10), ("binaries/aa/3", 4, 11)],
            *[("packages/aa/4", 8, 10), ("packages/aa/5", 16, 10), ("packages/aa/6", 1, 10)],
        ],
        "key string, length long, modified_ms long",
    )
    found = spark.createDataFrame(
        [
            *[("log", "reference", "binaries/aa/1"), ("author", "reference", "binaries/aa/1")],
            *[("log", "name", "packages/aa/4"), ("packages", "read", "packages/aa/5")],
            *[("packages", "unreadable", "packages/aa/6")] * 2,
        ],
        frames.FOUND,
    )
    unused = frames.unused(blobs, found, before_ms=10)
    assert {row["key"] for row in unused.collect()} == {"binaries/aa/2", "packages/aa/5"}
    assert [row["key"] for row in frames.unreadable(found).collect()] == ["packages/aa/6"]
    totals = {row["kind"]: tuple(row)[1:] for row in frames.totals(unused).collect()}
    assert totals == {"binaries": (1, 2), "packages": (1, 16)}
    removals = spark.createDataFrame(
        [("binaries/aa/2", 2, True), ("packages/aa/5", 16, False)],
        "key string, length long, removed boolean",
    )
    nothing = spark.createDataFrame([], frames.FOUND)
    left = frames.doomed(unused, nothing, removals).collect()
    assert [row["key"] for row in left] == ["packages/aa/5"]
    in_log = spark.createDataFrame(
        [("log", "in_log", "packages/aa/5"), ("log", "in_log", "packages/aa/6")], frames.FOUND
    )
    unread = frames.never_read(found.unionByName(in_log)).collect()
    assert [row["key"] for row in unread] == ["packages/aa/6"]


def test_r22_blobs_are_read_anew_that_are_not_as_they_were(spark: SparkSession) -> None:
    key, part = "packages/aa/1", "snapshots/aa/2"
    found = spark.createDataFrame(
        [
            *[("log", "reference", "binaries/aa/1", None, None, None)],
            *[("packages", "reference", "binaries/aa/1", key, 5, 10)] * 2,
            *[("packages", "read", key, key, 5, 10)],
            *[("packages", "reference", "binaries/aa/2", "packages/aa/3", 5, 10)],  # not to its end
            *[("packages", "unreadable", "packages/aa/3", "packages/aa/3", 5, 10)],
            *[("snapshots", "read", part, part, 5, 11)],
        ],
        frames.FOUND_IN,
    )
    remembered = frames.to_remember(found, before_ms=10)
    assert [tuple(row)[1:4] for row in remembered.orderBy("kind").collect()] == [
        ("read", key, key),
        *[("reference", "binaries/aa/1", key)] * 2,
    ]
    held = frames.HOLDER
    for listed, new, known in (
        ((key, 5, 10), 0, 3),
        ((key, 5, 11), 1, 0),
        ((key, 6, 10), 1, 0),
        ((part, 5, 11), 1, 0),
    ):
        blobs = spark.createDataFrame([listed], "key string, length long, modified_ms long")
        assert frames.to_read(blobs.toDF(*held), remembered).count() == new
        assert frames.read_before(blobs.toDF(*held), remembered).count() == known


def test_r22_a_mark_goes_on_from_what_the_last_one_has_remembered(
    spark: SparkSession, location: Location, yard: Yard
) -> None:
    unchanged, changed, young = (f"dstrpck-{number}-ab" for number in range(3))
    binaries = {name: yard.upload(name.encode()) for name in (unchanged, changed, young)}
    for name, binary in binaries.items():
        if name == young:
            yard.age()
        pack([large_node(f"/{name}", binary)], name, yard.blobs)
    yard.mark(SparkReport(spark, location, "mark-1-aa"))
    marks = Path(location.base, "marks")
    shutil.copytree(marks / "mark-1-aa", marks / "mark-0-aa")
    (marks / "mark-0-aa" / "rounds" / "mark-ab" / "references").mkdir(parents=True)
    for name in binaries:
        body = yard.folder / package_key(name)
        before = body.stat()
        body.chmod(0o600)
        body.write_bytes(bytes(before.st_size))
        if name != changed:
            os.utime(body, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = yard.mark(SparkReport(spark, location, "mark-2-aa"))
    summary = again.state()
    assert summary is not None
    assert (summary.unreadable, summary.unused.binaries.count) == (2, 2), "one was not read again"
    assert yard.sweep(again, dry_run=True).binaries.count == 2
    kept = sorted(one.parent.name for one in marks.glob("*/remembered-1"))
    assert kept == ["mark-1-aa", "mark-2-aa"]
    assert not [*marks.glob("*/rounds/*")]
    assert [one.name for one in (marks / "mark-0-aa").iterdir()] == ["summary"]


@contextmanager
def appending(yard: Yard) -> Iterator[None]:
    """Distribute meanwhile what was there before, and remove it at the author."""
    moving = yard.upload(b"moving")
    yard.write("/moving", moving)
    yard.age()
    stop = threading.Event()

    def append() -> None:
        while not stop.wait(0.3):  # what goes on without a pause slows down the others alone
            yard.commit_export(yard.begin_export("/moving"))
            yard.append_one()
            yard.import_next()
            if yard.applied >= 2:
                yard.remove("/moving")

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(append)
        try:
            yield
        finally:
            stop.set()
            working.result()


def swept(yard: Yard, report: SparkReport) -> Totals:
    """Sweep, once no export of `appending` that began before the mark's end is left."""

    def sweep() -> Totals:
        try:
            return yard.sweep(report)
        except NotYet as error:
            raise AssertionError(str(error)) from error

    return eventually(sweep)


def cut_short(report: SparkReport) -> SparkReport:
    """Let its next sweep be killed when each task has removed a blob."""
    whole = report.remove_doomed

    def remove_doomed(remove: Any, check: Any) -> Any:
        def some(doomed: Iterator[StoredBlob]) -> Iterator[SweepRemoval]:
            for number, done in enumerate(remove(doomed)):
                if number == 1:
                    raise RuntimeError("killed")
                yield done

        return whole(some, check)

    report.remove_doomed = remove_doomed  # type: ignore[method-assign]
    return report


def test_r22_marked_and_swept_after_a_kill_with_an_append_running_at_the_same_time(
    spark: SparkSession, location: Location, yard: Yard
) -> None:
    kept, gone = yard.upload(b"kept"), [yard.upload(b"%d" % number) for number in range(6)]
    yard.write("/kept", kept)
    stray = package_key("dstrpck-1-ab")
    yard.blobs.put(stray, [b"no package"])
    with appending(yard):
        report = yard.mark(SparkReport(spark, location, "mark-1-aa"))
        summary = report.state()
        assert summary is not None
        assert (summary.state, summary.unused.binaries.count) == (MarkState.COMPLETE, 6)
        assert (summary.unreadable, summary.unreadable_keys) == (1, (stray,))
        with pytest.raises(TaskFailed):
            swept(yard, cut_short(report))
        assert 0 < sum(map(yard.has, gone)) < 6
        assert swept(yard, SparkReport(spark, location, "mark-1-aa")).binaries.count == 6
    assert yard.referenced() <= yard.keys()
    assert not any(map(yard.has, gone))
    assert yard.has(kept)
    assert yard.blobs.head(stray) is not None
    with pytest.raises(TaskRefused, match="swept already"):
        yard.sweep(SparkReport(spark, location, "mark-1-aa"))


def test_a_source_that_fails_on_an_executor_fails_the_mark_and_the_sweep(
    spark: SparkSession, location: Location, yard: Yard
) -> None:
    binary = yard.upload(b"x")
    yard.age()
    complete = yard.mark(SparkReport(spark, location, "mark-2-aa"))
    yard.feed.raw(b"\xff", {"message-type": b"PackageMessage"})
    unreadable = "package at offset 0 can't be read"
    with pytest.raises(TaskRefused, match=unreadable):
        yard.sweep(complete)
    with pytest.raises(TaskRefused, match=unreadable):
        yard.mark(SparkReport(spark, location, "mark-3-aa"))
    assert not [*Path(location.base, "marks").glob("*/rounds/*")]
    with pytest.raises(TaskRefused, match="is not complete"):
        yard.sweep(SparkReport(spark, location, "mark-3-aa"))
    with pytest.raises(TaskRefused, match="no such mark"):
        yard.sweep(SparkReport(spark, location, "mark-4-aa"))
    assert yard.has(binary)


def test_a_report_that_cant_be_written_fails_the_mark(
    spark: SparkSession, location: Location, yard: Yard, tmp_path: Path
) -> None:
    binary = yard.upload(b"x")
    yard.age()
    (tmp_path / "tables" / "marks").write_text("no folder")
    with pytest.raises(PackhorseError, match="mark"):
        yard.mark(SparkReport(spark, location, "mark-5-aa"))
    assert yard.has(binary)
