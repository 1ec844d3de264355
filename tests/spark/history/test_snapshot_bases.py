"""What has expired stays in the snapshots: quiet agents, removed packages, what was left out."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from packhorse.content.node import Binary
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.beginning import BaseRules, beginning
from packhorse_services.pipeline.history.content import Choice, content_at
from packhorse_services.pipeline.history.headers import PackageHeaders
from packhorse_services.pipeline.history.target import target
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import stored
from packhorse_services.pipeline.upkeep import expiry
from tests.harness.feed import TOPICS, page
from tests.harness.history import content_of, statuses
from tests.spark.history.archived_site import Site

pytestmark = pytest.mark.spark

LATER = datetime(2030, 1, 1, tzinfo=UTC).date()


def expire(site: Site, up_to: int) -> None:
    stored(site.location, tables.BRONZE).delete(f"offset <= {up_to}")
    expiry.expire_statuses(site.spark, site.location, LATER)


def test_agents_come_and_go_quiet_and_removed_packages_stay_removed(site: Site) -> None:
    site.history.add(page("/a", 1))
    site.history.add(page("/gone", 1))
    site.history.agent = "quiet"
    site.history.add(page("/quiet", 1))
    site.archive()
    statuses(
        site.location,
        *(("live", 0, "IMPORTED"), ("live", 1, "REMOVED")),
        *(("back", 1, "REMOVED"), ("back", 1, "IMPORTED")),
    )
    everybody, live = site.make().snapshot, site.make(subscriber="live").snapshot
    expire(site, up_to=2)
    said = stored(site.location, tables.STATUSES).to_pyarrow_table().to_pylist()
    assert sorted((row["subscriber"], row["status"]) for row in said) == [
        ("back", "IMPORTED"),  # its last word on what it once removed
        ("back", "REMOVED"),
        ("live", "REMOVED"),
    ]

    site.history.agent = "main"
    site.history.add(page("/a", 2))
    site.history.agent = "new"
    site.history.add(page("/new", 1))
    site.archive()
    made = site.make()
    assert made.base == everybody
    assert set(site.content_of(made.snapshot)) == {"/a", "/gone", "/new", "/quiet"}
    assert made.snapshot.publisher_agents == ("main", "new", "quiet")
    made = site.make(subscriber="live")
    assert made.base == live
    assert set(site.content_of(made.snapshot)) == {"/a", "/new", "/quiet"}


def test_what_was_left_out_is_missing_only_where_it_was_asked_for(site: Site) -> None:
    site.history.add(page("/a", 1))
    site.history.add(page("/b", 1))
    site.archive()
    without = site.make(leave_out=(1,)).snapshot
    assert not site.make(leave_out=(1,)).is_new
    assert set(site.content_of(without)) == {"/a"}
    whole = site.make()
    assert (whole.is_new, whole.base) == (True, None)
    assert set(site.content_of(whole.snapshot)) == {"/a", "/b"}
    site.history.add(page("/c", 1))
    site.archive()
    point = target(site.location, TOPICS.package)

    def base(*absent: int) -> ContentSnapshot | None:
        rules = BaseRules(left_out=absent)
        headers = PackageHeaders(site.location, point.journal_id, point.version)
        return beginning(site.blobs, point, rules, headers).base

    assert (base(), base(1)) == (whole.snapshot, without)


def test_a_snapshot_of_an_older_offset_has_all_its_binaries(site: Site) -> None:
    lost = Binary("image", "ab" * 32, 3, "image/png")
    site.history.add(replace(page("/a", 1), binaries=(lost,)))
    site.history.add(page("/a", 2))
    site.archive()
    with pytest.raises(TaskRefused, match=r"sha256:abab.* of /a"):
        site.make(offset=0)
    assert site.make().is_new


def test_what_did_not_count_has_not_replaced_the_tree(site: Site) -> None:
    site.history.next_offset = 5  # what came before is unknown
    site.history.producer = "second"
    site.history.add(page("/x", 1))
    site.history.producer = "first"
    site.history.add(page("/b", 1), deep=["/"])
    site.history.add(page("/c", 1))
    site.history.add(page("/d", 1), deep=["/"])
    site.history.again(6)
    site.history.again(5)
    site.archive()
    made = site.make(leave_out=(8,))
    assert set(site.content_of(made.snapshot)) == {"/b", "/c"}


def test_a_fold_begins_at_a_replacement_that_all_subscriptions_are_past(site: Site) -> None:
    site.history.next_offset = 5  # what came before is unknown
    for path in ("/a", "/b"):
        site.history.add(page(path, 1), deep=["/"])
    site.archive()
    point = target(site.location, TOPICS.package)
    headers = PackageHeaders(site.location, point.journal_id, point.version)
    after = [
        beginning(site.blobs, point, BaseRules(below=below), headers).after for below in (None, 5)
    ]
    assert after == [5, 4]


def test_what_expires_meanwhile_is_still_read(site: Site) -> None:
    for path in ("/a", "/b"):
        site.history.add(page(path, 1))
    site.archive()
    point = target(site.location, TOPICS.package)
    expire(site, up_to=0)
    with content_at(site.spark, site.location, site.blobs_url, point, Choice()) as (content, _):
        assert content_of(content.unordered()) == site.history.model()
