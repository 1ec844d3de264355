"""The program as a process: killed in the middle of an import, paused longer than its lease."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg

from packhorse.wire.messages import Status
from tests.harness.feed import Feed, page
from tests.harness.processes import Program, Programs
from tests.harness.subscriber import assert_is_the_fold, content_of, position_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.running import reached, session_that_waits


@contextmanager
def locked(url: str, path: str) -> Iterator[None]:
    """Hold the row of a node, so that an import which writes it waits in its transaction."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT FROM content.node WHERE path = %s FOR UPDATE", (path,))
        yield
        connection.rollback()


def kill_while_importing(program: Program, url: str, offset: int) -> int:
    """Kill the program each time it is about to import, and return how often that was."""
    ended: list[int] = []
    while True:
        waiting = eventually(
            lambda: (
                program.supervise()
                or session_that_waits(url) not in (None, *ended)
                or position_of(url).offset >= offset
            )
        )
        if position_of(url).offset >= offset:
            return len(ended)
        assert waiting
        assert len(ended) < 6, "the package is never given up"
        ended.append(session_that_waits(url) or 0)
        program.kill()
        program.start()


def test_a_package_whose_import_ends_with_the_worker_is_given_up(
    programs: Programs, journal_feed: Feed, database_url: str
) -> None:
    program = programs.subscriber(
        "sub", database_url, max_retries=1, editable=True, backoff_first_s=0.1
    )
    program.start()
    program.ready()
    reached(database_url, journal_feed.add(page("/deadly", 1)))
    with locked(database_url, "/deadly"):
        bad = journal_feed.add(page("/deadly", 2))
        last = journal_feed.add(page("/next"))
        # Its group and two own attempts; a kill later than the lock's limit is no attempt.
        assert kill_while_importing(program, database_url, bad) >= 3
    reached(database_url, last)
    eventually(lambda: len({reported.offset for reported in journal_feed.statuses()}) == 3)
    given_up = [reported for reported in journal_feed.statuses() if reported.offset == bad]
    assert {(reported.status, reported.attempts) for reported in given_up} == {
        (Status.REMOVED_FAILED, 2)
    }
    assert_is_the_fold(database_url, journal_feed, removed=[bad])


def test_a_worker_paused_longer_than_its_lease_imports_nothing_twice(
    programs: Programs, journal_feed: Feed, database_url: str
) -> None:
    first = start(programs, database_url).ready()
    reached(database_url, journal_feed.add(page("/n", 0)))
    second = start(programs, database_url).ready()
    for round_, (runs, other) in enumerate([(first, second), (second, first)]):
        runs.pause()
        for number in range(15):
            last = journal_feed.add(page("/n", 100 * round_ + number))
        reached(database_url, last)
        runs.resume()
        journal_feed.add(page(f"/extra/{round_}"))
        last = journal_feed.add(page("/n", 100 * round_ + 99))
        reached(database_url, last)
        assert other.running
    eventually(lambda: len({s.offset for s in journal_feed.statuses()}) == last + 1)
    assert_is_the_fold(database_url, journal_feed)
    assert rows_of(database_url, "SELECT epoch FROM bookkeeping.lease")[0][0] >= 3


def start(programs: Programs, database_url: str, *, lease_s: int = 1, **settings: Any) -> Program:
    program = programs.subscriber("sub", database_url, editable=True, lease_s=lease_s, **settings)
    program.start()
    return program


def test_a_worker_killed_again_and_again_loses_and_repeats_nothing(
    programs: Programs, journal_feed: Feed, database_url: str
) -> None:
    journal_feed.producer = "author"
    program = start(programs, database_url).ready()
    for round_ in range(3):
        for number in range(40):
            last = journal_feed.add(page(f"/n{number % 7}", 40 * round_ + number))
        reached(database_url, last - 24)
        program.kill()
        program.start()
        program.ready()
    reached(database_url, last)
    eventually(lambda: len({s.offset for s in journal_feed.statuses()}) == last + 1)
    assert {status.status for status in journal_feed.statuses()} == {Status.IMPORTED}
    assert_is_the_fold(database_url, journal_feed)
    assert program.stop() == 0
    assert len(content_of(database_url)) == 7


def test_the_http_service_shows_content_and_state_to_those_who_may(
    programs: Programs, journal_feed: Feed, database_url: str
) -> None:
    ready = {"ready_when": "caught-up", "ready_idle_s": 0.1}
    program = start(programs, database_url, lease_s=60, exclude="/site/private", **ready)
    reached(database_url, journal_feed.add(page("/site/home", 7)))
    program.ready()
    bearer = {"Authorization": f"Bearer {programs.token}"}
    with httpx.Client(timeout=120, base_url=program.url) as anybody:
        assert anybody.get("/status").status_code == 401
        assert anybody.get("/content/site/home").status_code == 401
    with httpx.Client(timeout=120, base_url=program.url, headers=bearer) as client:
        node = client.get("/content/site/home").json()
        assert (node["type"], node["properties"]) == ("page", {"version": 7})
        assert client.get("/children/site").json()["children"][0]["path"] == "/site/home"
        assert client.put("/content/site/home", json={}).status_code == 405
        assert client.get("/content/no").status_code == 404
        status = client.get("/status").json()
        assert status["lease"]["held"] is True
        assert (status["include"], status["exclude"]) == ([], ["/site/private"])
        [subscription] = status["subscriptions"]
        assert subscription["behind_records"] == 0
        assert (subscription["next_attempt_at"], subscription["blocked_since"]) == (None, None)
        metrics = client.get("/metrics").text
        assert 'packhorse_subscriber_offset{agent="main"} 0.0' in metrics
        assert 'packhorse_subscriber_ready{reason="IDLE"} 1.0' in metrics
        assert 'packhorse_subscriber_ready_seconds{reason="IDLE"}' in metrics
        checks = client.get("/readyz?verbose").json()["checks"]
        assert checks["content"] == "ok"
        assert "journal" not in checks, "its content can be read without the journal"


def test_a_subscriber_that_has_to_catch_up_is_not_ready_before(
    programs: Programs, journal_feed: Feed, database_url: str
) -> None:
    program = start(programs, database_url, ready_when="caught-up", ready_idle_s=3600)
    reached(database_url, journal_feed.add(page("/site/home", 7)))

    def is_catching_up() -> bool:
        answer = httpx.get(f"{program.url}/readyz?verbose", timeout=120)
        reported = answer.status_code, answer.json()["checks"].get("content")
        assert reported == (503, "CATCHING_UP")
        return True

    eventually(is_catching_up)
    assert httpx.get(f"{program.url}/livez", timeout=120).status_code == 200
    assert httpx.get(f"{program.url}/startupz", timeout=120).status_code == 200
