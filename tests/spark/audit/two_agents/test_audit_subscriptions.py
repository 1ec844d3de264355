"""What the audit says of subscriptions at different offsets, and of who joined by a snapshot."""

import pytest

from packhorse_services.pipeline.snapshot.task import SnapshotRequest
from tests.harness.feed import page
from tests.harness.history import statuses
from tests.spark.audit.two_agents.site import Site, reported

pytestmark = pytest.mark.spark


def test_subscriptions_at_different_offsets_are_each_held_to_their_own(site: Site) -> None:
    for path in ("/a", "/b"):
        site.write("main", f"/m{path}")
        site.write("other", f"/o{path}")
    site.imported([0, 2, 1], {"main": (2, -1), "other": (1, -1)})
    site.keep("whole")
    site.edit("DELETE FROM content.node WHERE path IN ('/m/b', '/o/a')")
    site.edit("INSERT INTO content.node VALUES ('/o/b', 'page', '{}', '{}')")
    site.keep("damaged")
    audited = site.audit_kept("offsets")
    assert reported(audited["whole"]) == set()
    assert any("different offsets" in note for note in audited["whole"].notes)
    assert reported(audited["damaged"]) == {
        ("missing", "/m/b", 2),
        ("missing", "/o/a", 1),
        ("extra", "/o/b", None),
    }


def test_who_began_behind_an_offset_is_audited_like_the_others_or_since_its_start(
    site: Site,
) -> None:
    for number in range(4):
        site.write("main", f"/p{number}")
    site.imported([2, 3], {"main": (3, 1)})
    site.keep("latest")  # it began with these
    site.edit("DELETE FROM content.node WHERE path = '/p2'")
    site.keep("damaged latest")
    site.imported([0, 1, 2], {})
    site.keep("joined")  # as by a snapshot
    site.edit("DELETE FROM content.node WHERE path IN ('/p0', '/p3')")
    site.keep("damaged")

    audited = site.audit_kept("whole", "latest", "joined", "damaged")
    assert reported(audited["joined"]) == set()
    assert any("began behind offset 1" in note for note in audited["joined"].notes)
    assert reported(audited["damaged"]) == {("missing", "/p0", 0), ("missing", "/p3", 3)}
    assert reported(audited["latest"]) == {("missing", "/p0", 0), ("missing", "/p1", 1)}

    since = site.audit_kept("since", "latest", "damaged latest", since_start=True)
    assert reported(since["latest"]) == set()
    assert reported(since["damaged latest"]) == {("missing", "/p2", 2)}


@pytest.mark.parametrize(
    "request_of",
    [
        SnapshotRequest(2, leave_out=(1,)),
        pytest.param(SnapshotRequest(2, subscriber="golden"), marks=pytest.mark.depth),
    ],
    ids=["leave-out", "golden"],
)
def test_r8_who_joined_by_a_snapshot_is_held_to_what_that_left_out(
    site: Site, request_of: SnapshotRequest
) -> None:
    for number in range(4):
        site.write("main", f"/p{number}")
    site.imported([0, 2, 3], {"main": (3, 2)})
    statuses(site.location, ("golden", 1, "REMOVED"))
    made = site.snapshot(request_of)
    site.loaded(made)
    site.keep("whole")
    site.edit("DELETE FROM content.node WHERE path IN ('/p0', '/p3')")
    site.keep("damaged")
    audited = site.audit_kept("joined")
    assert reported(audited["whole"]) == set()
    assert any(made.id in note for note in audited["whole"].notes)
    assert reported(audited["damaged"]) == {("missing", "/p0", 2), ("missing", "/p3", 3)}


def test_r35_who_joined_by_another_ones_snapshot_is_not_held_to_what_names_that_one_later(
    site: Site,
) -> None:
    for number in range(3):
        site.write("main", f"/p{number}")
    site.imported([0, 2], {"main": (5, 2)})
    statuses(site.location, ("golden", 1, "REMOVED"))
    site.loaded(site.snapshot(SnapshotRequest(2, subscriber="golden")))
    for name in ("golden", "staged"):
        site.history.add(page(f"/{name}", 1), to=[name])
    site.write("main", "/p5")
    site.imported([4, 5], {})
    site.snapshot(SnapshotRequest(5, subscriber="golden"))
    site.keep("staged")
    assert reported(site.audit_kept("staged")["staged"]) == set()
