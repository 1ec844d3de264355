"""A database that says which snapshot it loaded is held to that one, and leaves no doubt."""

from contextlib import closing

import pytest

from packhorse.db.connect import connect
from packhorse.messaging.open import open_journal
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse.snapshots.store import remove
from packhorse.wire.messages import DesiredState, ResetCommand
from packhorse_services.pipeline.snapshot.task import SnapshotRequest
from packhorse_services.subscriber.commands import control
from packhorse_services.subscriber.commands.handler import CommandHandler, PreparedCommand
from packhorse_services.subscriber.commands.reset import ResetTarget
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.sequences import HighWater
from packhorse_services.subscriber.snapshots.load import Load, load
from tests.harness.feed import page
from tests.harness.history import JOURNAL, statuses
from tests.harness.subscriber import rows_of
from tests.spark.audit.two_agents.site import Site, reported

pytestmark = pytest.mark.spark


def joined(site: Site, snapshot: ContentSnapshot, epoch: int = 1) -> str:
    """Load a snapshot as a subscriber does; return what the audit is to say of it."""
    with closing(connect(site.url, "tests", autocommit=True)) as connection:
        connection.execute(
            "INSERT INTO bookkeeping.lease (holder, epoch, expires_at) VALUES ('w', %s, now()) "
            "ON CONFLICT DO NOTHING",
            (epoch,),
        )
        work = Load("sub", snapshot, ("/",), {}, lambda _: None)
        load(connection, site.history.bodies, work, epoch)
    return f"it joined by snapshot {snapshot.id} at offset {snapshot.offset}"


def test_r13_who_says_what_it_loaded_is_held_to_that_without_a_doubt(site: Site) -> None:
    for number in range(4):
        site.write("main", f"/p{number}")
    site.imported([0, 1, 2, 3], {"main": (3, -1)})
    site.snapshot(SnapshotRequest(2))
    lacking = site.snapshot(SnapshotRequest(2, leave_out=(1,)))
    reported_of = joined(site, lacking)  # back from 3: the subscription has begun before all of it
    site.keep("joined")
    site.imported([3], {})
    site.edit("UPDATE bookkeeping.position SET log_offset = 3")
    site.keep("later")
    site.edit("UPDATE bookkeeping.position SET log_offset = 1")
    site.keep("moved")
    site.edit("UPDATE bookkeeping.position SET log_offset = 3")
    site.edit("DELETE FROM content.node WHERE path IN ('/p0', '/p3')")
    site.keep("damaged")
    audited = site.audit_kept("joined")
    for name in ("joined", "later"):
        assert (reported(audited[name]), audited[name].notes) == (set(), [reported_of])
    assert reported(audited["damaged"]) == {("missing", "/p0", 2), ("missing", "/p3", 3)}
    assert any("was moved back" in note for note in audited["moved"].notes)


def moved_back(site: Site, offset: int, epoch: int) -> None:
    """Reset the subscription of `main` as a subscriber does on a command."""
    journal = open_journal("memory://none", client_name="tests")
    handler = CommandHandler("sub", ("main",), True, journal, "none")
    target = ResetTarget("main", JOURNAL, Mark(offset, ""), HighWater({}), ())
    command = ResetCommand("c", "sub", "main", offset, journal_id=JOURNAL)
    with closing(connect(site.url, "tests", autocommit=True)) as connection:
        control.store(connection, "main", DesiredState.STOP, "")
        handler.apply(
            connection, command, epoch, PreparedCommand(JOURNAL, 99, target), lambda: None
        )
    states = rows_of(site.url, "SELECT state FROM bookkeeping.command_status ORDER BY state")
    assert ("APPLIED",) in states


def test_r25_who_was_reset_to_before_its_snapshot_is_held_to_what_it_imports_again(
    site: Site,
) -> None:
    for number in range(5):
        site.write("main", f"/p{number}")
    site.imported([], {})
    joined(site, site.snapshot(SnapshotRequest(3, leave_out=(2,))))
    moved_back(site, 1, epoch=2)
    site.imported([2, 3, 4], {})
    site.edit("UPDATE bookkeeping.position SET log_offset = 4")
    site.keep("whole")
    site.edit("DELETE FROM content.node WHERE path = '/p2'")
    site.keep("damaged")
    audited = site.audit_kept("again")
    assert reported(audited["whole"]) == set()
    assert reported(audited["damaged"]) == {("missing", "/p2", 2)}


@pytest.mark.parametrize("left_out", [(), (1,)])
def test_who_began_with_a_snapshot_for_everybody_has_not_what_names_it_below_that(
    site: Site, left_out: tuple[int, ...]
) -> None:
    for number in range(2):
        site.write("main", f"/p{number}")
    site.history.add(page("/named"), to=("sub",))
    site.imported([], {})
    joined(site, site.snapshot(SnapshotRequest(2, leave_out=left_out)))
    site.write("main", "/p3")
    site.imported([3], {})
    site.edit("UPDATE bookkeeping.position SET log_offset = 3")
    statuses(site.location, ("sub", 3, "IMPORTED"))
    site.snapshot(SnapshotRequest(3, subscriber="sub", leave_out=left_out))  # has it
    assert reported(site.audit("named")) == set()


def test_who_follows_another_agent_later_has_what_names_it_of_that_one(site: Site) -> None:
    site.write("main", "/p0")
    site.history.agent = "other"
    site.history.add(page("/named"), to=("sub",))
    site.write("main", "/p2")
    site.imported([], {})
    joined(site, site.snapshot(SnapshotRequest(2, agents=("main",))))
    site.write("other", "/p3")
    site.imported([1, 3], {"other": (3, -1)})
    site.snapshot(SnapshotRequest(3))  # has it not
    assert reported(site.audit("added")) == set()


@pytest.mark.depth
def test_that_the_snapshot_is_gone_is_said(site: Site) -> None:
    for number in range(4):
        site.write("main", f"/p{number}")
    site.imported([], {})
    lacking = site.snapshot(SnapshotRequest(2, leave_out=(1,)))
    reported_of = joined(site, lacking)
    site.imported([3], {})
    site.edit("UPDATE bookkeeping.position SET log_offset = 3")
    newer = site.snapshot(SnapshotRequest(3, leave_out=(1,)))
    remove(lacking, site.history.bodies)
    gone = f"{reported_of}, whose manifest the blob store no longer has"
    audited = site.audit("newer")
    assert (reported(audited), audited.notes) == (set(), [gone])
    remove(newer, site.history.bodies)
    audited = site.audit("none")
    assert audited.problem.endswith(gone)


def test_r13_an_added_subscription_holds_just_what_came_behind_its_beginning(site: Site) -> None:
    """`main` joined by a snapshot at 3, without 1; `other` follows behind 1, or from the first."""
    for agent in ("other", "main", "other", "main", "other"):
        site.write(agent, f"/{agent}/{site.history.next_offset}")
    site.imported([], {})
    reported_of = joined(site, site.snapshot(SnapshotRequest(3, agents=("main",), leave_out=(1,))))
    site.write("main", "/main/5")
    site.imported([5], {})
    site.edit("UPDATE bookkeeping.position SET log_offset = 5 WHERE publisher_agent = 'main'")
    before = site.url
    for name, began in (("later", 1), ("first", -1)):
        site.url = site.databases.copy(before)
        later = [offset for offset in (0, 2, 4) if offset > began]
        site.imported(later, {"other": (4, began)})
        if name == "first":
            nine = """UPDATE content.node SET properties = '{"version": 9}'"""
            site.edit(f"{nine} WHERE path LIKE '/main/_'")
            site.edit("DELETE FROM content.node WHERE path IN ('/other/0', '/other/4')")
        site.keep(name)

    audited = site.audit_kept("added")
    assert reported(audited["later"]) == set()
    notes = audited["later"].notes
    assert reported_of in notes
    assert any("added after the snapshot, behind offset 1" in note for note in notes)
    assert reported(audited["first"]) == {
        ("different", "/main/3", 3),
        ("different", "/main/5", 5),
        ("missing", "/other/0", 0),
        ("missing", "/other/4", 4),
    }
