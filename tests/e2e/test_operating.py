"""Operating subscribers as processes: clear, pause, stop and reset, reported from issue to end."""

import sys
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse.db.connect import connect
from tests.harness.imported import COMMAND_LINE
from tests.harness.processes import Process
from tests.harness.site import Document, Site
from tests.harness.waiting import eventually

WAIT_S = 180.0
WAIT = ("--wait", "--timeout", "300")
IMPATIENT = {"backoff_first_s": 0.1, "backoff_longest_s": 0.2, "announce_s": 1}


@pytest.fixture
def name(running: Site) -> Iterator[str]:
    """An editable subscriber of the test's own, which begins at the log's end."""
    name = f"op-{uuid.uuid4().hex[:8]}"
    running.join(name, editable=True, start="latest", import_roots=f"/{name}/open", **IMPATIENT)
    yield name
    running.leave(name)


def put(site: Site, subscriber: str, action: str) -> Document:
    answer = site.http.put(f"{site.publisher.url}/subscribers/{subscriber}/{action}")
    assert answer.status_code == 202, answer.text
    return command(site, answer)


def command(site: Site, answer: httpx.Response) -> Document:
    """Return the command that an answer points to."""
    return site.get(answer.headers["location"])


def patch(site: Site, subscriber: str, offset: int) -> httpx.Response:
    path = f"/subscribers/{subscriber}/offset"
    return site.http.patch(site.publisher.url + path, json={"offset": offset})


def becomes(site: Site, given: Document, state: str) -> Document:
    def look() -> Document | None:
        found = site.get(f"/commands/{given['command_id']}")
        return found if found["state"] == state else None

    found = eventually(look, timeout=WAIT_S, what=f"{given} becomes {state}")
    assert found is not None
    return found


def says(site: Site, subscriber: str, state: str) -> None:
    eventually(
        lambda: site.get(f"/subscribers/{subscriber}")["state"] == state,
        timeout=WAIT_S,
        what=f"{subscriber} says {state}",
    )


def waiting(site: Site, subscriber: str, length: int) -> None:
    eventually(
        lambda: site.queue(subscriber)["length"] == length, timeout=WAIT_S, what=f"{length} wait"
    )


def test_r8_stop_reset_resume_imports_again(running: Site, name: str) -> None:
    first = running.get(f"/subscribers/{name}")["offset"]
    for number in range(5):
        running.put(f"/{name}/open/{number}", properties={"number": number})
        running.distribute_everywhere(f"/{name}/open/{number}")
    assert patch(running, name, first).status_code == 409, "it is not stopped"
    becomes(running, put(running, name, "stop"), "APPLIED")
    says(running, name, "STOPPED")
    with connect(running.database_urls[name], "tests") as connection:
        connection.execute("DELETE FROM content.node WHERE path <> '/'")
    accepted = patch(running, name, first)
    assert accepted.status_code == 202
    becomes(running, command(running, accepted), "APPLIED")
    assert running.at(name, f"/{name}/open/0") is None
    becomes(running, put(running, name, "resume"), "APPLIED")
    waiting(running, name, 0)

    def is_equal() -> bool:  # the queue may come from an announcement before the reset
        hashes = running.hashes(f"/{name}/open")
        return hashes[name] == hashes["author"]

    eventually(is_equal, timeout=WAIT_S, what="everything is imported again")


def test_a_publisher_that_is_killed_sends_nobody_away_who_waits(
    running: Site, name: str, tmp_path: Path
) -> None:
    becomes(running, put(running, name, "pause"), "APPLIED")
    running.put(f"/{name}/open/page")
    settings = {
        "PACKHORSE_SERVER": running.publisher.url,
        "PACKHORSE_TOKEN": running.programs.token,
    }
    arguments = ("distribute", f"/{name}/open/page", *WAIT)
    command = (sys.executable, "-m", COMMAND_LINE, *arguments)
    waiter = Process("waiter", command, settings, tmp_path)
    waiter.start()
    try:
        eventually(waiter.output.read_text, timeout=WAIT_S, what="it is accepted")
        running.publisher.kill()
        running.publisher.start()
        running.publisher.ready()
        becomes(running, put(running, name, "resume"), "APPLIED")
        assert waiter.wait(360) == 0, waiter.said()
    finally:
        if waiter.running:
            waiter.kill()


def test_a_pause_survives_kill_9(running: Site, name: str) -> None:
    becomes(running, put(running, name, "pause"), "APPLIED")
    says(running, name, "PAUSED")
    running.put(f"/{name}/open/page")
    distributed = running.distribute(f"/{name}/open/page")
    program = running.subscribers[name]
    program.kill()
    program.start()
    program.ready()
    eventually(
        lambda: _subscription(running, name)["state"] == "PAUSED",
        timeout=WAIT_S,
        what="it stands still again",
    )
    assert running.at(name, f"/{name}/open/page") is None
    becomes(running, put(running, name, "resume"), "APPLIED")
    running.everywhere(distributed)
    assert running.at(name, f"/{name}/open/page") is not None


def _subscription(site: Site, name: str) -> dict[str, Any]:
    answer = site.http.get(f"{site.subscribers[name].url}/status")
    subscription: dict[str, Any] = answer.json()["subscriptions"][0]
    return subscription


def test_r19_a_clear_is_reported_from_issue_to_end_also_to_one_that_is_away(
    running: Site, name: str
) -> None:
    running.put(f"/{name}/closed")
    running.put(f"/{name}/open/page")
    refused = running.distribute(f"/{name}/closed")

    def blocked() -> Document:
        queue = running.queue(name)
        assert queue["state"] == "BLOCKED"
        assert queue["head"]["attempts"] >= 3
        return queue

    queue = eventually(blocked, timeout=WAIT_S, what="it is blocked")
    assert f"/{name}/closed" in queue["head"]["last_error"]
    program = running.subscribers[name]
    program.kill()
    behind = running.distribute(f"/{name}/open/page")
    waiting(running, name, 2)
    entries = running.queue(name)["entries"]
    assert [entry["offset"] for entry in entries] == [refused["offset"], behind["offset"]]
    issued = command(running, running.clear(name, up_to_offset=refused["offset"]))
    given = becomes(running, issued, "SENT")
    assert given["removed"] is None
    program.start()
    program.ready()
    applied = becomes(running, given, "APPLIED")
    assert applied["removed"] == 1
    times = [datetime.fromisoformat(applied[name]) for name in ("issued_at", "seen_at", "ended_at")]
    assert times == sorted(times)
    running.everywhere(behind)
    assert running.at(name, f"/{name}/open/page") is not None
    assert running.at(name, f"/{name}/closed") is None
    became = running.everywhere(refused)["subscribers"]
    assert {one["subscriber"]: one["state"] for one in became}[name] == "REMOVED"
    listed = running.get(f"/commands?subscriber={name}")["commands"]
    assert [one["command_id"] for one in listed] == [given["command_id"]]


def test_a_publisher_that_died_before_it_sent_sends_after_its_restart(
    running: Site, name: str
) -> None:
    """The row is there; that nobody appended it is what the death left behind."""
    given = put(running, name, "resume")
    running.publisher.kill()
    with connect(running.author_url, "tests") as connection:
        connection.execute(
            """
            INSERT INTO bookkeeping.command
                (command_id, agent, subscriber, kind, journal_id, issued_by, state)
            SELECT %s, agent, subscriber, 'PAUSE', journal_id, 'op', 'ISSUED'
            FROM bookkeeping.command WHERE command_id = %s
            """,
            ("f" * 32, given["command_id"]),
        )
        connection.execute(
            "UPDATE bookkeeping.command SET state = 'ISSUED' WHERE command_id = %s",
            (given["command_id"],),
        )
    running.publisher.start()
    running.publisher.ready()
    becomes(running, {"command_id": "f" * 32}, "APPLIED")
    says(running, name, "PAUSED")
    put(running, name, "resume")
    with connect(running.database_urls[name], "tests") as connection:
        rows = connection.execute(
            "SELECT count(*) FROM bookkeeping.audit WHERE command_id = %s",
            (given["command_id"],),
        ).fetchall()
    assert rows == [(1,)], "sent twice, done once"
