"""The programs of a site in their clusters: what they announce, and who has which leader task."""

from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest

from tests.harness.postgres import Databases
from tests.harness.processes import Program
from tests.harness.site import Site, site
from tests.harness.waiting import eventually

WAIT_S = 180.0
TIED: LiteralString = """
    FROM pg_stat_activity JOIN pg_locks AS life USING (pid)
    JOIN topology.instance AS one ON (life.locktype, life.mode) = ('advisory', 'ShareLock')
        AND life.classid::bigint << 32 | life.objid::bigint
            = hashtextextended(one.runtime_id, 7237118983466215795)
"""
"""Sessions, and the instances of whose runs they end."""
TIMES = {"topology_interval_s": 0.4, "topology_timeout_s": 5, "min_event_delay_s": 0.4}


@pytest.fixture(scope="module")
def running(databases: Databases) -> Iterator[Site]:
    """A publisher, a content API, a subscriber, and two cleanup services; each test ends so."""
    with site(databases, databases.new("journal"), **TIMES) as built:
        built.subscriber("sub1")
        names = {"publisher-0": built.publisher, "content-0": built.content}
        names |= {"sub1-0": built.subscribers["sub1"]}
        for number in range(2):
            names[f"cleanup-{number}"] = built.programs.cleanup(built.author_url)
        for name, program in names.items():
            program.environment["PACKHORSE_INSTANCE_ID"] = name
        built.start()
        yield built


def active(url: str) -> dict[str, dict[str, str]]:
    """Return the properties of the instances that are active in a database."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT id, properties FROM topology.instance WHERE state = 'ACTIVE'"
        ).fetchall()
    return dict(rows)


def clean(built: Site, requested: Program) -> None:
    """Ask for a run and wait until it has succeeded; one that was cut off is done once more."""
    answer = built.http.post(f"{requested.url}/cleanup/runs", json={"dry_run": True})
    asked = answer.raise_for_status().json()["id"]

    def succeeded() -> bool:
        found = built.http.get(f"{requested.url}/cleanup/runs").raise_for_status().json()
        mine = [run for run in found if run["id"] >= asked and run["dry_run"]]
        assert any(run["state"] == "SUCCEEDED" for run in mine), f"{mine}\n{requested.said()}"
        return True

    eventually(succeeded, timeout=WAIT_S, what="the run has succeeded")


def test_each_program_announces_itself_in_the_cluster_of_its_database(running: Site) -> None:
    author = eventually(
        lambda: (found := active(running.author_url)) and len(found) == 4 and found,
        timeout=WAIT_S,
        what="all have joined",
    )
    reported = {
        name: (one["packhorse.role"], one.get("packhorse.agent"), one.get("packhorse.duties"))
        for name, one in author.items()
    }
    assert reported == {
        "publisher-0": ("publisher", "main", "notifier.main,scheduler"),
        "content-0": ("content", None, None),
        "cleanup-0": ("cleanup", None, "cleanup,scheduler"),
        "cleanup-1": ("cleanup", None, "cleanup,scheduler"),
    }
    [subscriber] = eventually(
        lambda: active(running.database_urls["sub1"]).values(), timeout=WAIT_S, what="it has joined"
    )
    assert subscriber["packhorse.role"] == "subscriber"
    assert subscriber["packhorse.agent"] == "sub1"
    assert subscriber["packhorse.endpoint"] == running.subscribers["sub1"].url


@pytest.mark.parametrize("end", ["kill", "pause"])
def test_the_cleanup_goes_on_at_another_instance(running: Site, end: str) -> None:
    services = {
        program.environment["PACKHORSE_INSTANCE_ID"]: program for program in running.programs.all
    }
    first, second = services["cleanup-0"], services["cleanup-1"]
    clean(running, second)
    getattr(first, end)()
    clean(running, second)
    if end == "pause":
        first.resume()
    else:
        first.start()
    eventually(lambda: "cleanup-0" in active(running.author_url), timeout=WAIT_S, what="it is back")
    clean(running, first.ready())


def test_the_append_lock_ends_with_the_publisher_that_has_it(running: Site) -> None:
    """So a publisher that is paused in an export holds up others for its lease, and no longer."""
    running.put("/page")
    running.distribute_everywhere("/page")
    with psycopg.connect(running.author_url) as connection:
        tied = connection.execute(
            f"SELECT one.id {TIED} WHERE application_name = 'publisher-append-lock-main'"
        ).fetchall()
    assert tied == [("publisher-0",)]


def recorder(url: str) -> tuple[int, str]:
    """Return which session of the database records outcomes, and of which instance it is."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            f"""
            SELECT pid, one.id {TIED} JOIN pg_locks AS held USING (pid)
            WHERE application_name = 'publisher-outcomes-main'
            AND (held.locktype, held.mode, held.granted) = ('advisory', 'ExclusiveLock', true)
            """
        ).fetchone()
    return (0, "") if row is None else (int(row[0]), str(row[1]))


def test_outcomes_go_on_at_another_publisher_when_the_first_is_paused(running: Site) -> None:
    other = running.programs.publisher(running.author_url, instance_id="publisher-1")
    other.start()
    other.ready()
    publishers = {"publisher-0": running.publisher, "publisher-1": other}
    eventually(lambda: publishers.keys() <= active(running.author_url).keys(), timeout=WAIT_S)
    first, holder = eventually(
        lambda: (seen := recorder(running.author_url))[0] and seen,
        timeout=WAIT_S,
        what="a recorder",
    )
    publishers[holder].pause()
    try:
        eventually(
            lambda: recorder(running.author_url)[0] not in (0, first),
            timeout=WAIT_S,
            what="another session has the recorder lock, long before the limit on idle ones",
        )
    finally:
        publishers[holder].resume()
    other.stop()
    eventually(lambda: recorder(running.author_url)[0], timeout=WAIT_S, what="it goes on again")


def test_without_a_topology_content_is_published_and_imported(running: Site) -> None:
    databases = [running.author_url, running.database_urls["sub1"]]
    for url in databases:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER SCHEMA topology RENAME TO away")
    for program in (running.publisher, running.content, running.subscribers["sub1"]):
        program.restart()
    running.put("/page")
    running.distribute_everywhere("/page")
    assert running.at("sub1", "/page") is not None
    running.publisher.ready()

    for url in databases:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER SCHEMA away RENAME TO topology")
    eventually(
        lambda: "publisher-0" in active(running.author_url), timeout=WAIT_S, what="it has joined"
    )
