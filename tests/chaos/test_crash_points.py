"""A subscriber killed at its n-th send to a server, for every n until it lives.

After each kill the database must be exactly the fold of the journal up to its offset, and a second
run must finish as if nothing had happened. `make chaos` takes every point, `make test` every few.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.content.node import Node
from packhorse.messaging.open import open_journal
from packhorse.wire.messages import Status
from packhorse_services.subscriber.lease import LEASE_SESSIONS
from tests.chaos import ledger
from tests.chaos.crash_subject import COMMAND, FILTER
from tests.harness.feed import Feed, page
from tests.harness.fold import MERE_FOLDER, as_authored, filtered, fold
from tests.harness.noise import noise
from tests.harness.postgres import Databases
from tests.harness.processes import Process
from tests.harness.subscriber import content_of, rows_of
from tests.harness.traced import run_until_send
from tests.harness.waiting import eventually

STRIDE = int(os.environ.get("TEST_CRASH_STRIDE", "97"))
MOST_POINTS = 4000
"""Ten times what a subject sends that has to wait for nobody."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]


@dataclass
class Crashes:
    """A journal with one package of each kind, and fresh subscribers to kill."""

    databases: Databases
    journal_url: str
    feed: Feed
    blobs: Path
    clear_up_to: int
    removed: set[int]
    expected: dict[int, Status]

    def subject(self, url: str, *how: str) -> list[str]:
        """Return the command of a subscriber of the database at `url`."""
        module = "tests.chaos.crash_subject"
        arguments = (url, self.journal_url, str(self.blobs), str(self.clear_up_to), *how)
        return [sys.executable, "-m", module, *arguments]

    def crash(self, point: int, *how: str) -> tuple[str, bool]:
        """Kill a fresh subscriber at its n-th send; return its database, and whether it died."""
        url = self.databases.new("crash")
        ledger.install(url)
        subject = Process("subject", self.subject(url, *how), {}, self.blobs.parent)
        return url, run_until_send(subject, point)

    def check_after_kill(self, url: str) -> None:
        """R8: content and offset belong together, whatever was being done."""
        rows = rows_of(url, "SELECT log_offset FROM bookkeeping.position")
        offset = rows[0][0] if rows else -1
        self._check_content(url, offset)

    def check_after_restart(self, url: str) -> None:
        """The second run ends where an undisturbed one ends, and did nothing twice."""
        held = f"SELECT FROM pg_stat_activity WHERE application_name LIKE '{LEASE_SESSIONS}%' "
        mine = held + "AND datname = current_database()"
        eventually(lambda: not rows_of(url, mine), what="the dead one's session has ended")
        again = Process("again", self.subject(url), {}, self.blobs.parent)
        again.start()
        assert again.wait(600) == 0, again.said()
        self._check_content(url, None)
        writes = ledger.writes(url)
        assert set(writes.values()) <= {1}, f"imported twice: {writes}"

    def _check_content(self, url: str, up_to: int | None) -> None:
        """R35: what the subject's filter takes is the fold's, and there is nothing else."""
        expected = fold(self.feed.records(), self.feed.blobs, removed=self.removed, up_to=up_to)
        found = content_of(url)
        taken, others = as_authored(found, FILTER)
        wanted = filtered(expected, FILTER)
        assert taken == wanted, f"the content is not that of offset {up_to}"
        assert all(one == MERE_FOLDER for one in others.values()), "what is left out was written"


def _feed(feed: Feed) -> Crashes:
    """Append one package of each kind.

    Cleared, plain, left out, deep and taken in part, bad, by reference, delete.
    """
    feed.producer = "author"
    cleared = feed.add(page(f"{ledger.ONCE}cleared"))
    first = feed.add(page(f"{ledger.ONCE}1"), page("/content/shared/1", 1))
    feed.add(page("/content/deep"), page("/content/deep/a"), deep=["/content/deep"])
    skipped = feed.add(page("/content/private/1"))
    deep = (page("/content/deep"), page("/content/deep/b"), page("/content/deep/private/c"))
    feed.add(*deep, deep=["/content/deep"])
    bad = feed.bad()
    big = noise()
    stored = feed.add(page(f"{ledger.ONCE}2", text=big), Node("/content/shared/1", "page"))
    kept = [feed.add(page(f"{ledger.ONCE}{number}")) for number in range(3, 9)]
    deleted = feed.delete("/content/deep")
    imported = (first, stored, *kept, deleted)
    expected = dict.fromkeys(imported, Status.IMPORTED)
    expected |= {bad: Status.REMOVED_FAILED, skipped: Status.SKIPPED}
    return Crashes(None, "", feed, Path(), cleared, {bad, cleared}, expected)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def crashes(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashes]:
    journal_url, blobs = databases.new("journal"), tmp_path_factory.mktemp("blobs")
    journal = open_journal(journal_url, client_name="tests")
    made = _feed(Feed(journal, open_blobs(str(blobs))))
    made.databases, made.journal_url, made.blobs = databases, journal_url, blobs
    yield made
    journal.close()


def test_r8_killed_at_any_send_a_subscriber_goes_on_as_if_nothing_had_happened(
    crashes: Crashes,
) -> None:
    killed = 0
    for point in range(1, MOST_POINTS, STRIDE):
        url, died = crashes.crash(point)
        crashes.check_after_kill(url)
        if not died:
            break
        killed += 1
        crashes.check_after_restart(url)
    assert not died, f"more than {MOST_POINTS} sends: the subject never got to its end"
    assert killed >= max(1, 40 // STRIDE), f"only {killed} points: is the subject traced at all?"


def test_r9_every_decision_is_reported_however_the_subscriber_ended(crashes: Crashes) -> None:
    reported = {status.offset: status.status for status in crashes.feed.statuses()}
    assert reported.items() >= crashes.expected.items()
    cleared = [s for s in crashes.feed.statuses() if s.offset == crashes.clear_up_to]
    assert {(s.status, s.command_id) for s in cleared} == {(Status.REMOVED, COMMAND)}


@pytest.mark.proof
def test_the_crash_points_catch_an_importer_that_commits_content_and_offset_apart(
    crashes: Crashes,
) -> None:
    for point in range(20, MOST_POINTS, 2):
        url, died = crashes.crash(point, "broken")
        try:
            crashes.check_after_kill(url)
        except AssertionError:
            return
        assert died, "no kill of the broken importer was noticed"
