"""Snapshots of the archive: what they hold, what they begin with, what becomes of killed runs."""

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from packhorse.snapshots.snapshot import ReportedState, node_list_key
from packhorse.snapshots.store import all_of, remove
from packhorse_services.pipeline.errors import TablesUnusable, TaskRefused
from packhorse_services.pipeline.history.read import asked
from packhorse_services.pipeline.history.target import target
from packhorse_services.pipeline.snapshot import reported_state, task
from packhorse_services.pipeline.snapshot.reported_state import heard, require_heard_of
from packhorse_services.pipeline.snapshot.task import (
    remove_leftovers,
)
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import prepare
from tests.harness.feed import TOPICS, page
from tests.harness.history import BEGIN_MS, JOURNAL, announcements, gap, statuses
from tests.spark.history.archived_site import Site

pytestmark = pytest.mark.spark


def test_a_snapshot_is_the_fold_in_parts_of_bounded_size(site: Site) -> None:
    site.history.add(*[page(f"/s/{number:02}", number, text="x" * 100) for number in range(30)])
    site.history.delete("/s/07")
    twice = site.history.again(0)
    site.archive()
    made = site.make(part_characters=1_000)
    assert site.content_of(made.snapshot) == site.history.model()
    assert len(made.snapshot.parts) > 2
    assert all(part.content_length < 2_000 for part in made.snapshot.parts)
    head = made.snapshot
    assert (head.offset, head.journal_id, head.publisher_agents) == (twice, JOURNAL, ("main",))
    assert head.package_id == site.history.records[0].headers["package-id"].decode()
    assert [(one.producer, one.epoch, one.sequence, one.log_offset) for one in head.sequences] == [
        ("p", 1, 1, 1)
    ]


def killed_before_the_manifest(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(task, "publish", die)
        with pytest.raises(SystemExit):
            site.make()


def test_a_snapshot_goes_on_from_the_newest_that_is_whole(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.history.add(page("/a/b", 1), page("/a/c", 1))
    site.history.delete("/a/c")
    site.archive()
    killed_before_the_manifest(site, monkeypatch)
    (orphan,) = site.parts()
    assert list(all_of(site.blobs)) == []
    first = site.make()
    assert (first.base, first.leftovers) == (None, 0)  # a part so young may be of a living run
    assert not site.make().is_new
    site.history.again(0)  # a repeat of what the base has applied
    site.history.add(page("/a/d", 2))
    site.archive()
    lost = site.make().snapshot
    site.blobs.delete(lost.parts[0].key)
    second = site.make()
    assert (second.is_new, second.base) == (True, first.snapshot)
    assert site.content_of(second.snapshot) == site.history.model()
    assert {one.id for one in all_of(site.blobs)} == {first.snapshot.id, second.snapshot.id}

    again = site.make(offset=1, keep=1)
    assert (again.snapshot, again.is_new) == (first.snapshot, False)
    assert again.pruned == 1, "of the newest one stays, beside what was asked for"
    assert [one.id for one in all_of(site.blobs)] == [first.snapshot.id]
    assert site.content_of(first.snapshot) == site.history.model(up_to=1)
    assert set(site.parts()) >= {orphan, first.snapshot.parts[0].key}
    assert remove_leftovers(site.blobs, older_than_ms=-1000) == 2
    assert site.parts() == [first.snapshot.parts[0].key]
    lists = [one.key for one in site.blobs.list("snapshots/") if "nodes-" in one.key]
    assert lists == [node_list_key(first.snapshot.parts[0])], "a list stays with the part"


def test_a_snapshot_for_one_leaves_out_what_it_removed_and_says_what_was_heard(
    site: Site, spark: SparkSession
) -> None:
    site.history.add(page("/a", 1))
    site.history.add(page("/a", 2))
    site.history.again(0)  # nobody reports a repeat
    site.history.add(page("/b", 1))
    site.archive()
    everybody = site.make()
    assert everybody.snapshot.told == ()
    point = target(site.location, TOPICS.package)
    statuses(site.location, ("live", 0, "IMPORTED"), ("live", 3, "IMPORTED"))
    assert heard(spark, site.location, point, "live") == (ReportedState("main", 0, 0),)
    statuses(site.location, ("other", 3, "REMOVED_FAILED"), ("live", 1, "REMOVED"))
    made = site.make(subscriber="live")
    assert made.base is None  # the one for everybody holds what was removed
    live = made.snapshot
    assert (live.subscriber, live.told) == ("live", (ReportedState("main", 3, BEGIN_MS + 1),))
    assert site.content_of(live) == site.history.model(removed=[1])
    assert site.content_of(everybody.snapshot) == site.history.model()
    statuses(site.location, ("new", 3, "IMPORTED"))  # what it said of the first is on its way
    assert heard(spark, site.location, point, "new") == (ReportedState("main", -1, 0),)
    same = site.make(subscriber="new")  # nothing was distributed since the one for everybody
    assert (same.base, same.snapshot.parts) == (everybody.snapshot, everybody.snapshot.parts)
    [part] = same.snapshot.parts
    site.blobs.delete(node_list_key(part))
    statuses(site.location, ("newer", 3, "IMPORTED"))
    anew = site.make(subscriber="newer")
    assert (anew.base, anew.snapshot.nodes) == (everybody.snapshot, everybody.snapshot.nodes)
    assert site.content_of(anew.snapshot) == site.history.model()


def test_a_name_that_nobody_has_heard_of_is_refused(site: Site) -> None:
    site.history.add(page("/a", 1))
    site.archive()
    with pytest.raises(TaskRefused, match="'nosuch', it knows none yet"):
        site.make(subscriber="nosuch")
    statuses(site.location, ("live", 0, "IMPORTED"))
    with pytest.raises(TaskRefused, match=r"'nosuch', it knows live; .*leave --subscriber out"):
        site.make(subscriber="nosuch")
    assert list(all_of(site.blobs)) == []


def test_of_many_names_few_are_read_and_twenty_shown(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(site.location)
    statuses(site.location, *[(f"s{number:02}", 0, "IMPORTED") for number in range(0, 50, 2)])
    announcements(site.location, *[(f"s{number:02}", BEGIN_MS) for number in range(1, 50, 2)])
    answers: list[int] = []

    def counted(*question: Any) -> Any:
        answer = asked(*question)
        answers.append(len(answer))
        return answer

    monkeypatch.setattr(reported_state, "asked", counted)
    for known in ("s48", "s49"):
        require_heard_of(site.location, known, [])
    with pytest.raises(TaskRefused, match=r"knows s00, s01, .*, s18, s19, …; correct the name"):
        require_heard_of(site.location, "nosuch", [])
    assert max(answers) == 21, "names are untrusted, and there may be any number"


def test_an_incomplete_history_is_refused_until_the_whole_tree_is_replaced(site: Site) -> None:
    site.history.next_offset = 5
    site.history.add(page("/a", 1))
    site.archive()
    with pytest.raises(TaskRefused, match=r"lacks offsets 0 to 4 .* distribute --deep /"):
        site.make()
    whole = site.history.add(page("/b", 1), deep=["/"])
    site.history.add(page("/c", 1))
    site.archive()
    assert set(site.content_of(site.make().snapshot)) == {"/b", "/c"}
    gap(site.location, 8, 10)
    site.history.next_offset = 10
    site.history.add(page("/d", 1))
    site.archive()
    assert site.make(offset=whole + 1).base is None
    with pytest.raises(TaskRefused, match="lacks offsets 8 to 9"):
        site.make()


@pytest.mark.depth  # `test_snapshot_bases.py` expires what a base holds
def test_a_base_bridges_what_the_archive_has_let_go(site: Site, spark: SparkSession) -> None:
    site.history.add(page("/a", 1))
    site.history.add(page("/b", 1))
    site.archive()
    site.make()
    site.history.add(page("/c", 1))
    site.archive()
    bronze = site.location.spark_path(tables.BRONZE)
    spark.sql(f"DELETE FROM delta.`{bronze}` WHERE offset < 2")
    assert site.content_of(site.make().snapshot) == site.history.model()


def test_packages_that_cannot_be_read_are_left_out_only_on_request(site: Site) -> None:
    site.history.producer = ""
    site.history.add(page("/a", 1))
    good = site.history.records[0]
    bad = site.history.raw(good.value[:-1], dict(good.headers))
    site.archive()
    with pytest.raises(TaskRefused, match=f"offset {bad}: Undecodable"):
        site.make()
    made = site.make(leave_out=(bad,))
    assert set(site.content_of(made.snapshot)) == {"/a"}


def test_bodies_by_reference_come_from_the_archive_and_must_be_there(site: Site) -> None:
    noise = random.Random(1)
    site.history.add(
        *[page(f"/n/{number}", text=noise.randbytes(450_000).hex()) for number in "abcd"]
    )
    (body,) = site.history.bodies.list("packages/")
    site.archive()
    assert site.content_of(site.make().snapshot) == site.history.model()
    for snapshot in all_of(site.blobs):
        remove(snapshot, site.blobs)
    site.history.bodies.delete(body.key)
    with pytest.raises(TaskRefused, match="offset 0: BlobMissing"):
        site.make()


def test_nothing_archived_and_nothing_that_early_are_refused(site: Site) -> None:
    with pytest.raises(TablesUnusable, match="packhorse-pipeline archive"):
        site.make()
    site.history.add(page("/a", 1))
    site.archive()
    with pytest.raises(TaskRefused, match="offset 7 is not archived"):
        site.make(offset=7)
    with pytest.raises(TaskRefused, match="'other'"):
        site.make(agents=("other",))
