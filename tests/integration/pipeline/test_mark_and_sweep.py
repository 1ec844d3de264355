"""R22: what nobody refers to goes, what anybody refers to stays, and doubt removes nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from packhorse.blobs.api import binary_key, package_key
from packhorse.content.node import Binary, Node
from packhorse.packages.body import pack
from packhorse.snapshots.parts import Change, EncodedNode, write_changes, write_part
from packhorse.snapshots.snapshot import part_key
from packhorse_services.pipeline.errors import NotYet, TaskRefused
from packhorse_services.pipeline.sweep.report import MarkState, Totals
from packhorse_services.pipeline.sweep.stores import Stores
from packhorse_services.pipeline.sweep.sweeping import PATIENCE, SweepTimes
from packhorse_services.pipeline.sweep.work import BlobScan, Scan
from tests.harness.feed import TOPICS
from tests.harness.noise import large_node
from tests.harness.plain_report import PlainReport
from tests.harness.postgres import Databases
from tests.harness.snapshots import encoded_nodes
from tests.harness.sweep import AT_ONCE, HOURS, Yard, wait_a_moment, yard_of


@pytest.fixture
def yard(databases: Databases, tmp_path: Path) -> Iterator[Yard]:
    with yard_of(databases, tmp_path / "blobs") as made:
        yield made


def test_r22_what_nobody_refers_to_goes_and_all_else_stays(yard: Yard) -> None:
    used, unused = yard.upload(b"used"), yard.upload(b"unused")
    yard.write("/a", used)
    yard.age()
    young = yard.upload(b"young")
    report = yard.mark()
    assert report.summary.state is MarkState.COMPLETE
    assert (report.summary.unused.binaries.count, report.summary.unused.binaries.bytes) == (1, 6)
    assert yard.has(unused), "a mark removes nothing"
    assert yard.sweep(report, dry_run=True).binaries.count == 1
    assert yard.has(unused), "nor does a dry run"
    assert yard.sweep(report).binaries.count == 1
    assert [yard.has(one) for one in (used, unused, young)] == [True, False, True]
    with pytest.raises(TaskRefused, match="swept already"):
        yard.sweep(report)


def test_r22_sources_are_read_as_references_travel(yard: Yard) -> None:
    order = ["the author", "outbox", "log", "packages", "snapshots", "subscriber sub"]
    assert yard.mark().read_sources == order


def test_r22_every_place_that_refers_to_a_binary_keeps_it(yard: Yard) -> None:
    names = ("author", "outbox", "log", "stored", "part", "changes", "subscriber")
    binaries = {name: yard.upload(name.encode()) for name in names}
    yard.write("/author", binaries["author"])
    for name in ("subscriber", "log", "outbox"):
        yard.write(f"/{name}", binaries[name])
        yard.commit_export(yard.begin_export(f"/{name}"))
        yard.remove(f"/{name}")
        if name != "outbox":
            yard.append_one()
        if name == "subscriber":
            yard.import_next()
            yard.forget_log()
    nodes = [Node("/p", "page", binaries=(binaries["part"],))]
    part = write_part(encoded_nodes(nodes), part_key("0a" * 8, 1), yard.blobs)
    now = EncodedNode.of(Node("/q", "page", binaries=(binaries["changes"],)))
    changes = [Change("/p", None), Change("/q", now)]
    write_changes(part, changes, 1, part_key("0a" * 8, 2), yard.blobs)
    large = large_node("/s", binaries["stored"])
    yard.age()
    pack([large], "dstrpck-9-ab", yard.blobs)
    report = yard.mark()
    assert [name for name in names if not yard.has(binaries[name])] == []
    assert report.candidates == []
    for source in report.read_sources:
        blind = yard.mark(Blind(source=source))
        assert blind.candidates, f"only {source} refers to one of them"


@dataclass
class Blind(PlainReport):
    """Doesn't read one source."""

    source: str = ""

    def read(self, round_name: str, name: str, scan: Scan, pieces: Sequence[Any]) -> None:
        if name != self.source:
            super().read(round_name, name, scan, pieces)

    def read_blobs(self, round_name: str, name: str, scan: BlobScan, pieces: Sequence[Any]) -> None:
        if name != self.source:
            super().read_blobs(round_name, name, scan, pieces)


def test_r22_what_blobs_refer_to_is_read_once_and_anew_when_they_change(yard: Yard) -> None:
    first, second = yard.upload(b"first"), yard.upload(b"other")

    def store(binary: Binary) -> None:
        yard.blobs.delete(part_key("0a" * 8, 1))
        node = Node("/s", "page", binaries=(binary,))
        write_part(encoded_nodes([node]), part_key("0a" * 8, 1), yard.blobs)

    pack([large_node("/l")], "dstrpck-9-ab", yard.blobs)
    store(first)
    yard.age()
    both = [package_key("dstrpck-9-ab"), part_key("0a" * 8, 1)]
    assert yard.mark().read_blob_keys == both
    known = yard.mark()
    assert known.read_blob_keys == []
    assert [blob.key for blob in known.candidates if blob.key.startswith("b")] == [
        binary_key(second.sha256)
    ]
    store(second)
    yard.mark()
    changed = yard.mark()
    assert changed.read_blob_keys == [part_key("0a" * 8, 1)], "it is too young to be remembered"
    assert [blob.key for blob in changed.candidates if blob.key.startswith("b")] == [
        binary_key(first.sha256)
    ]


def test_a_stored_package_that_nobody_names_is_reported_and_goes(yard: Yard) -> None:
    key = package_key("dstrpck-1-ab")
    content = b"(\xb5/\xfd \x00\x01\x00\x00"  # an empty frame
    yard.blobs.put(key, [content])
    named = package_key("dstrpck-2-cd")
    yard.blobs.put(named, [content])
    yard.author.execute(
        "INSERT INTO bookkeeping.stored_package (key, package_id, length, sha256) "
        "VALUES (%s, 'dstrpck-2-cd', 9, '')",
        (named,),
    )
    yard.age()
    report = yard.mark()
    assert [blob.key for blob in report.candidates] == [key]
    assert report.summary.unused.packages.count == 1
    yard.sweep(report)
    assert [blob.key for blob in yard.blobs.list("packages/")] == [named]


def test_r22_what_is_referred_to_again_after_the_mark_stays(yard: Yard) -> None:
    again, renewed = yard.upload(b"again"), yard.upload(b"renewed")
    yard.age()
    report = yard.mark()
    assert len(report.candidates) == 2
    yard.write("/a", yard.upload(b"again"))
    yard.blobs.renew(binary_key(renewed.sha256))
    assert yard.sweep(report) == Totals()
    assert yard.has(again)
    assert yard.has(renewed)


def test_r22_a_mark_is_not_swept_while_an_older_export_goes_on(yard: Yard) -> None:
    binary = yard.upload(b"x")
    yard.write("/a", binary)
    yard.age()
    export = yard.begin_export("/a")
    yard.remove("/a")
    report = yard.mark()
    assert len(report.candidates) == 1
    with pytest.raises(NotYet, match=r"older than the end of the mark \(packhorse-publisher"):
        yard.sweep(report)
    yard.commit_export(export)
    assert yard.sweep(report) == Totals()
    assert yard.has(binary)


def test_r22_marks_that_may_not_be_swept(yard: Yard) -> None:
    yard.upload(b"x")
    yard.age()
    with pytest.raises(TaskRefused, match="no such mark"):
        yard.sweep(PlainReport())
    report = yard.mark()
    with pytest.raises(NotYet, match="may not be in the log yet"):
        yard.sweep(report, patience=PATIENCE)
    with pytest.raises(TaskRefused, match="too old to be swept"):
        yard.sweep(report, patience=SweepTimes(0, -1))
    for state in (MarkState.RUNNING, MarkState.FAILED):
        report.note(replace(report.summary, state=state))
        with pytest.raises(TaskRefused, match="is not complete"):
            yard.sweep(report)
    report.note(replace(report.summary, state=MarkState.COMPLETE, journal_id="another"))
    with pytest.raises(TaskRefused, match="journal is another one"):
        yard.sweep(report)
    assert len(yard.keys()) == 1


def test_r22_a_log_that_was_cut_above_the_mark_is_another_log(yard: Yard) -> None:
    report = yard.mark()
    for _ in range(2):
        yard.feed.delete("/gone")
    yard.journal.truncate(TOPICS.package, 1)
    with pytest.raises(TaskRefused, match="no longer holds offset 0"):
        yard.sweep(report)


def test_a_subscriber_that_would_not_be_read_is_named(yard: Yard) -> None:
    yard.author.execute(
        "INSERT INTO bookkeeping.known_subscriber VALUES "
        "('main', 'forgotten', '', now() - interval '5 minutes')"
    )
    with pytest.raises(TaskRefused, match="would not be read: forgotten"):
        yard.mark()
    report = yard.mark(gone=["forgotten"])
    with pytest.raises(TaskRefused, match="would not be read: forgotten"):
        yard.sweep(report)
    yard.sweep(report, gone=["forgotten"])


def test_a_name_that_is_gone_for_nothing_is_known(yard: Yard) -> None:
    yard.author.execute(
        "INSERT INTO bookkeeping.known_subscriber VALUES ('main', 'known', '', now()), "
        "('bulk', 'known', '', now())"
    )
    assert yard.stores.unheard_of(["typo", "known", "more"]) == ["more", "typo"]
    assert yard.stores.unheard_of(["known"]) == []


def test_r22_who_is_there_is_not_gone(yard: Yard) -> None:
    """What only it refers to would lose its protection by a wrong name."""
    report = yard.mark()
    yard.author.execute(
        "INSERT INTO bookkeeping.known_subscriber VALUES ('main', 'alive', '', now())"
    )
    for again in (yard.mark, partial(yard.sweep, report)):
        with pytest.raises(TaskRefused, match=r"alive has announced itself .* not gone; end it"):
            again(gone=["alive"])


@pytest.mark.parametrize("years", [1, -1])
def test_a_clock_that_jumps_removes_nothing(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    young = yard.upload(b"young")
    now_ms = type(yard.blobs).now_ms
    jump = years * 365 * 24 * HOURS
    monkeypatch.setattr(type(yard.blobs), "now_ms", lambda self: now_ms(self) + jump)
    with pytest.raises(TaskRefused, match="apart, so that no age is certain"):
        yard.mark()
    monkeypatch.undo()
    yard.age()
    report = yard.mark()
    clocks = Stores._clocks
    monkeypatch.setattr(
        Stores, "_clocks", lambda self: [clocks(self)[at] + jump * (at != 1) for at in range(3)]
    )
    with pytest.raises(TaskRefused):
        yard.sweep(report)
    assert yard.has(young)


def test_the_age_counts_again_before_each_removal(yard: Yard) -> None:
    yard.upload(b"x")
    yard.age()
    report = yard.mark()
    report.note(replace(report.summary, safety_age_ms=48 * HOURS))
    assert yard.sweep(report) == Totals()
    assert len(yard.keys()) == 1


def test_a_sweep_that_was_killed_goes_on(yard: Yard) -> None:
    for number in range(5):
        yard.upload(b"%d" % number)
    yard.age()
    report = yard.mark()

    def killed(remove: Any, check: Any) -> Any:
        removing = remove(iter(report.doomed))
        for _ in range(2):
            next(removing)
        raise KeyboardInterrupt

    whole, report.remove_doomed = report.remove_doomed, killed
    with pytest.raises(KeyboardInterrupt):
        yard.sweep(report)
    assert len(yard.keys()) == 3
    report.remove_doomed = whole
    assert yard.sweep(report, patience=AT_ONCE).binaries.count == 5
    assert yard.keys() == set()


def test_two_sweeps_at_once_remove_the_same(yard: Yard) -> None:
    yard.upload(b"x")
    yard.age()
    first, second = yard.mark(), yard.mark()
    wait_a_moment()
    assert yard.sweep(first).binaries.count == 1
    assert yard.sweep(second).binaries.count == 1
    assert yard.keys() == set()
