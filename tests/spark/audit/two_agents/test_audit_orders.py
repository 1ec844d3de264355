"""Where two publisher agents have done something at one path, no offset says which came last."""

import pytest

from packhorse_services.pipeline.audit.outcome import ExitCode, exit_code
from packhorse_services.pipeline.snapshot.task import SnapshotRequest
from tests.spark.audit.two_agents.site import Site, reported

pytestmark = pytest.mark.spark


def contested(site: Site) -> None:
    """Let two agents change the same paths; then import them in another order than the log's."""
    site.write("other", "/shared", 1)  # 0
    site.write("main", "/shared", 2)
    site.write("other", "/gone")  # 2
    site.history.agent = "main"
    site.history.delete("/gone")
    site.history.delete("/back")  # 4
    site.write("other", "/back/x")
    site.write("main", "/page")  # 6
    site.write("other", "/page/below")
    site.write("main", "/own")  # 8
    site.imported([1, 3, 0, 2, 5, 4, 6, 7, 8], {"main": (8, -1), "other": (7, -1)})


def test_r10_what_another_order_of_the_subscriptions_gives_is_undecided(site: Site) -> None:
    contested(site)
    site.edit("""UPDATE content.node SET properties = '{"version": 9}' WHERE path = '/own'""")
    audited = site.audit("other order")
    assert reported(audited) == {
        ("undecided", "/shared", 1),
        ("undecided", "/gone", 3),
        ("undecided", "/back", 5),
        ("undecided", "/back/x", 5),
        ("different", "/own", 8),
    }
    assert exit_code([audited]) is ExitCode.DIFFERENT
    assert not audited.as_json()["equal"]


@pytest.mark.depth
def test_r10_a_newer_snapshot_which_holds_the_order_of_the_log_decides_nothing(site: Site) -> None:
    contested(site)
    site.snapshot(SnapshotRequest(7))
    site.edit("""UPDATE content.node SET properties = '{"version": 9}' WHERE path = '/page'""")
    assert reported(site.audit("snapshot")) == {
        ("undecided", "/shared", 7),
        ("undecided", "/gone", None),
        ("undecided", "/back", 7),
        ("undecided", "/back/x", 7),
        ("different", "/page", 7),
    }


@pytest.mark.depth
def test_r10_who_joined_by_a_snapshot_holds_the_order_of_the_log_in_it(site: Site) -> None:
    contested(site)
    site.snapshot(SnapshotRequest(7))
    site.edit("UPDATE bookkeeping.position SET started_offset = 7")
    assert {kind for kind, *_ in reported(site.audit("joined"))} == {
        "missing",
        "extra",
        "different",
    }


@pytest.mark.depth
def test_what_no_order_of_the_subscriptions_gives_differs(site: Site) -> None:
    contested(site)
    site.edit("""UPDATE content.node SET properties = '{"version": 9}' WHERE path = '/gone'""")
    site.edit("""UPDATE content.node SET properties = '{"version": 9}' WHERE path = '/own'""")
    site.edit("UPDATE content.node SET type = 'folder', properties = '{}' WHERE path = '/page'")
    site.edit("DELETE FROM content.node WHERE path IN ('/shared', '/page/below')")
    site.edit("INSERT INTO content.node VALUES ('/back', 'folder', '{}', '{}')")
    audited = site.audit("broken")
    assert reported(audited) == {
        ("missing", "/shared", 1),
        ("extra", "/gone", 3),
        ("undecided", "/back/x", 5),
        ("different", "/page", 6),
        ("missing", "/page/below", 7),
        ("different", "/own", 8),
    }
    assert exit_code([audited]) is ExitCode.DIFFERENT
