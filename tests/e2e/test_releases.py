"""R5, R35: a release goes out once, to its targets, whichever replicas that send it are killed."""

import sys
from contextlib import closing

import pytest

from packhorse.messaging.open import open_journal
from packhorse.wire.package_codec import decode_entry
from tests.harness.jobs.stored import end_leases
from tests.harness.journals import everything
from tests.harness.postgres import Databases
from tests.harness.site import Site, site
from tests.harness.subscriber import rows_of
from tests.harness.waiting import eventually

pytestmark = pytest.mark.timeout(600)

_PUBLISHER = "packhorse_services.publisher"
BETWEEN_FIRE_AND_COMMIT = f"{_PUBLISHER}.outbox.release_rows:sent@after1"
BEFORE_THE_ATTEMPT_ENDS = f"{_PUBLISHER}.outbox.journal_appender:JournalAppender.deliver@after1"


def packages_in(site: Site, journal_url: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the paths and the targets of all packages in the journal."""
    topic = f"{site.programs.all[0].environment['PACKHORSE_TOPIC_PREFIX']}_package"
    with closing(open_journal(journal_url, client_name="tests")) as journal:
        entries = [decode_entry(record.headers) for record in everything(journal, topic)]
    return [(one.paths, one.targets) for one in entries]


def test_r5_a_release_goes_out_once_whichever_replica_is_killed(databases: Databases) -> None:
    journal_url = databases.new("journal")
    with site(databases, journal_url) as built:
        first = built.publisher
        second, third = (built.programs.publisher(built.author_url) for _ in range(2))
        for replica, point in (
            (first, BETWEEN_FIRE_AND_COMMIT),
            (second, BEFORE_THE_ATTEMPT_ENDS),
        ):
            deadly = (sys.executable, "-m", "tests.harness.killed_program", point, _PUBLISHER)
            replica.command = deadly
        for program in (built.content, built.subscriber("sub"), first):
            program.start()
            program.ready()
        built.put("/news")
        eventually(lambda: built.get("/subscribers/sub"), timeout=240, what="the target is known")
        answer = built.http.post(
            f"{first.url}/distribute",
            json={"action": "ADD", "paths": ["/news"], "at": "now", "targets": ["sub"]},
        )
        release = answer.json()["id"]
        eventually(lambda: not first.running, timeout=240, what="the first replica was killed")
        end_leases(built.author_url)
        second.start()
        eventually(lambda: not second.running, timeout=240, what="the second one too")
        end_leases(built.author_url)
        third.start()
        third.ready()
        built.publisher = third

        def state() -> str:
            return str(built.get(f"/distributions/{release}")["state"])

        eventually(lambda: state() == "DISTRIBUTED", timeout=240, what=f"sent\n{third.said()}")
        assert built.at("sub", "/news") is not None
        jobs = "SELECT FROM jobs.job WHERE topic = 'packhorse/releases/main'"
        eventually(
            lambda: not rows_of(built.author_url, jobs),
            timeout=240,
            what="the job's last attempt has ended",
        )
        assert packages_in(built, journal_url) == [(("/news",), ("sub",))]
