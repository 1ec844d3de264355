"""The audit finds each path that is not as it must be, and names the package."""

import json

import pytest

from packhorse.db.connect import connect
from packhorse.packages.path_filter import PathFilter
from packhorse_services.pipeline.audit.outcome import ExitCode, exit_code
from packhorse_services.pipeline.audit.task import FINDINGS
from packhorse_services.pipeline.snapshot.task import SnapshotRequest, make_snapshot
from tests.harness.feed import TOPICS, page
from tests.harness.history import JOURNAL, archive, statuses
from tests.harness.table_page import columns
from tests.spark.audit.audited_site import Site, reported

pytestmark = pytest.mark.spark


MAPPED = PathFilter((), ("/here", "/there"), (("/a", "/here"), ("/deep", "/there")), ("vers*",))


BASES = pytest.mark.parametrize(
    "with_base", [False, pytest.param(True, marks=pytest.mark.depth)], ids=["alone", "with base"]
)
"""Whether the fold goes on from a snapshot for everybody."""


@BASES
def test_r35_what_is_for_named_subscribers_is_expected_there_alone(
    site: Site, with_base: bool
) -> None:
    special = site.history.add(page("/a/b", 3), page("/special"), to=["named"])
    site.history.add(page("/after"))
    archive(site.location, site.history.records[special:])
    for name in ("named", "wrong"):
        site.subscriber(name)
    for name in ("other", "told", "silent"):
        site.subscriber(name, removed=(special,))
    with connect(site.urls["other"], "tests") as other:
        other.execute(
            "INSERT INTO bookkeeping.status (publisher_agent, log_offset, subscriber, status, "
            "package_id, attempts, reason, command_id, journal_id, left_out) VALUES "
            "('main', %s, 'other', 'SKIPPED', '', 0, '', '', %s, true)",
            (special, JOURNAL),
        )
    statuses(site.location, ("told", special, "LEFT_OUT"))
    if with_base:
        blobs = str(site.history.bodies.root)
        made = make_snapshot(
            site.spark, site.location, TOPICS.package, blobs, SnapshotRequest()
        ).snapshot
        assert (made.subscriber, made.left_out) == ("", "")
    found = {one.subscriber: one for one in site.audit(*site.urls)}
    assert all(not reported(found[name]) for name in ("named", "other", "told", "silent"))
    assert {(one.kind, one.path) for one in found["wrong"].findings} == {
        ("different", "/a/b"),
        ("extra", "/special"),
    }


@BASES
def test_r35_of_a_part_of_the_content_only_that_part_is_expected(
    site: Site, with_base: bool
) -> None:
    site.history.add(page("/e"), page("/e/x"), page("/e/x/y"), page("/e/x-y"), deep=["/e"])
    last = site.history.delete("/e")
    site.history.add(page("/e/x/y", 2), page("/deep/x", 2))
    site.history.add(page("/deep"), page("/deep/x"), page("/deep/z"), deep=["/deep"])
    archive(site.location, site.history.records[last - 1 :])
    filters = [
        PathFilter(("/a", "/deep"), ("/deep/x",)),
        PathFilter(exclude=("/a/b", "/e/x")),
        PathFilter(("/a/b", "/deep/z")),
    ]
    for number, path_filter in enumerate(filters):
        site.subscriber(f"part{number}", path_filter=path_filter)
    site.subscriber("mapped", path_filter=MAPPED)
    wrong = site.subscriber("wrong", path_filter=MAPPED)
    wrong.execute("DELETE FROM content.node WHERE path = '/here/b'")
    wrong.execute("INSERT INTO content.node VALUES ('/there/more', 'page', '{}', '{}')")
    wrong.execute("""UPDATE content.node SET properties = '{"text": 1}' WHERE path = '/there'""")
    wrong.execute("""UPDATE content.node SET properties = '{"version": 1}' WHERE path = '/here'""")
    broken = site.subscriber("broken", path_filter=filters[0])
    for path in ("/deep/x", "/deep/more", "/e"):
        broken.execute("INSERT INTO content.node VALUES (%s, 'page', '{}', '{}')", (path,))
    broken.execute("DELETE FROM content.node WHERE path = '/a/b'")
    if with_base:
        blobs = str(site.history.bodies.root)
        make_snapshot(site.spark, site.location, TOPICS.package, blobs, SnapshotRequest())
    found, *whole, mapped = site.audit(*site.urls)
    assert all(not reported(one) and "by its filter" in str(one.notes) for one in whole)
    assert "paths are the author's: it has /a at /here, /deep at /there" in mapped.notes
    assert {(one.kind, one.path) for one in mapped.findings} == {
        ("missing", "/a/b"),
        ("extra", "/deep/more"),
        ("different", "/deep"),
    }
    assert {(one.kind, one.path) for one in found.findings} == {
        ("missing", "/a/b"),
        ("extra", "/deep/more"),
    }


def test_r8_what_is_broken_is_found_and_what_is_whole_passes(site: Site) -> None:
    broken = site.subscriber("broken")
    broken.execute("DELETE FROM content.node WHERE path = '/deep/x'")
    broken.execute("INSERT INTO content.node VALUES ('/c', 'page', '{}', '{}')")
    broken.execute("INSERT INTO content.node VALUES ('/never', 'page', '{}', '{}')")
    broken.execute("""UPDATE content.node SET properties = '{"version": 9}' WHERE path = '/a/b'""")
    site.subscriber("whole")
    site.subscriber("earlier", up_to=2)
    left = site.subscriber("left", removed=(4,))
    left.execute(
        "INSERT INTO bookkeeping.status (publisher_agent, log_offset, subscriber, status, "
        "package_id, attempts, reason, command_id, journal_id) VALUES "
        "('main', 4, 'left', 'REMOVED', '', 0, '', '', %s)",
        (JOURNAL,),
    )
    site.subscriber("reported", removed=(4,))
    statuses(site.location, ("reported", 4, "REMOVED_FAILED"))
    site.subscriber("silent", removed=(4,))
    site.urls["away"] = "postgresql://nobody@127.0.0.1:1/none"
    found = {one.subscriber: one for one in site.audit(*site.urls)}
    assert site.folds <= 4, "those in the same situation share a fold"
    assert reported(found["broken"]) == {
        ("missing", "/deep/x", 1),
        ("extra", "/c", 2),
        ("extra", "/never", None),
        ("different", "/a/b", 3),
    }
    assert all(not reported(found[name]) for name in ("whole", "earlier", "left", "reported"))
    assert reported(found["silent"]) == {("missing", "/a/removed", 4)}
    assert "subscriber away can't be read" in found["away"].problem
    assert exit_code(list(found.values())) is ExitCode.DIFFERENT
    assert exit_code([found["whole"], found["away"]]) is ExitCode.UNKNOWN
    assert exit_code([found["whole"]]) is ExitCode.EQUAL
    table = site.spark.read.format("delta").load(
        site.location.spark_path(f"audit/audit-{len(site.urls)}")
    )
    assert table.count() == 5
    assert list(columns(table.schema)) == list(columns(FINDINGS))


def test_what_cant_be_compared_is_said(site: Site) -> None:
    ahead = site.subscriber("ahead")
    ahead.execute("UPDATE bookkeeping.position SET log_offset = 99")
    other = site.subscriber("other")
    other.execute("UPDATE bookkeeping.position SET journal_id = 'another'")
    site.urls["new"] = site.databases.new("new")
    ahead_, new, other_ = site.audit("ahead", "other", "new")
    assert "ahead of the archive" in ahead_.problem
    assert "JOURNAL_MISMATCH" in other_.problem
    assert "no subscription yet" in new.problem
    site.urls["typo"] = "postgresql://u:secret@h:54x/db"
    site.urls["unknown"] = "postgresql://u:secret@h/db?nosuch=1"
    for one in site.audit("typo", "unknown"):
        assert f"no URL of the database of subscriber {one.subscriber}" in one.problem
        assert "secret" not in one.problem
    assert json.dumps([one.as_json() for one in (ahead_, new, other_)])
