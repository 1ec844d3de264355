"""`GET /events` over real connections to real publisher processes on a SQL journal."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from tests.harness.live_site import Site, live_site
from tests.harness.postgres import Databases
from tests.harness.processes import Program
from tests.harness.publishing import TOPICS
from tests.harness.sse import EventClient
from tests.harness.waiting import eventually


@pytest.fixture
def site(databases: Databases) -> Iterator[Site]:
    with live_site(databases) as site:
        yield site


def test_what_happens_is_reported_as_it_happens(site: Site) -> None:
    program = site.publisher()
    client = site.client(program, types="package,status,distributed,subscriber")
    assert client.response.headers["content-type"].startswith("text/event-stream")
    assert client.response.headers["x-accel-buffering"] == "no"
    assert "no-cache" in client.response.headers["cache-control"]
    first = client.blocks[0]
    assert (first.data, first.retry) == ("", 2000)
    one = site.distribute(program, "/a")
    site.announce("sub", -1, retries=3, last_error="boom")
    site.status("sub", 0, package_id=one, attempts=4, reason="disk full")
    site.distributed(one)
    client.until(lambda c: len({block.event for block in c.blocks}) == 5)
    [package] = client.events("package")
    assert (package["package_id"], package["offset"], package["action"]) == (one, 0, "INVALIDATE")
    assert (package["paths"], package["user"]) == (["/a"], "admin")
    [status] = client.events("status")
    assert (status["subscriber"], status["status"], status["offset"]) == (
        "sub",
        "REMOVED_FAILED",
        0,
    )
    assert (status["package_id"], status["attempts"], status["reason"]) == (one, 4, "disk full")
    assert client.events("distributed")[0]["package_id"] == one
    assert [state["state"] for state in client.events("subscriber")] == ["BLOCKED"]
    site.announce("sub", 0)
    client.until(lambda c: [one["state"] for one in c.events("subscriber")][1:] == ["IDLE"])


def test_a_client_goes_on_where_it_was_at_another_replica_and_after_kill_9(site: Site) -> None:
    one, two = site.publisher(), site.publisher()
    client = site.client(one)
    expected = [site.distribute(one, "/a") for _ in range(3)]
    site.status("sub", 0, package_id=expected[0])
    client.until(lambda c: len(c.events()) == 4)
    seen = client.events("package")
    client.close()
    expected += [site.distribute(two, "/b") for _ in range(3)]
    other = site.client(two, client.last_id).until(lambda c: len(c.events()) == 3)
    expected.append(site.distribute(one, "/a"))
    other.until(lambda c: len(c.events()) == 4)
    two.kill()
    eventually(lambda: other.clean_end is not None)
    seen += other.events("package")
    expected += [site.distribute(one, "/a") for _ in range(2)]
    site.status("sub", 1, package_id=expected[1])
    two.start()
    two.ready()
    last = site.client(two, other.last_id).until(lambda c: len(c.events()) == 3)
    seen += last.events("package")
    assert [event["package_id"] for event in seen] == expected
    assert [event["package_id"] for event in last.events("status")] == [expected[1]]


def test_r2_what_the_log_has_forgotten_is_reported_as_a_gap(site: Site) -> None:
    program = site.publisher()
    client = site.client(program)
    ids = [site.distribute(program, "/a") for _ in range(5)]
    client.until(lambda c: len(c.events()) == 5)
    site.journal.truncate(TOPICS.package, 3)
    other = site.publisher()  # the first one still has them in memory
    late = site.client(other, client.blocks[0].id).until(lambda c: len(c.events()) == 3)
    gap, *rest = late.events()
    assert gap == {"source": "package", "from_offset": 0, "to_offset": 3, "reason": "FORGOTTEN"}
    assert [event["package_id"] for event in rest] == ids[3:]


def test_streams_are_bounded_and_a_place_is_free_again_when_a_client_goes(site: Site) -> None:
    program = site.publisher(event_streams=2)
    leaving, _ = site.client(program), site.client(program)
    refused = site.ask(program, "/events")
    assert (refused.status_code, refused.json()["type"]) == (429, "/problems/too-many-streams")
    assert int(refused.headers["retry-after"]) > 0
    leaving.close()

    def again() -> EventClient | None:
        try:
            return site.client(program)
        except AssertionError:
            return None

    eventually(again)


@pytest.mark.parametrize(
    ("query", "last_id", "pointer"),
    [
        ("", "nonsense", "header/last-event-id"),
        ("", "p1-s1", "header/last-event-id"),
        ("?types=package,nonsense", "", "query/types"),
        ("?types=", "", "query/types"),
        ("?subscriber=", "", "query/subscriber"),
    ],
)
def test_what_can_not_be_followed_is_refused_before_the_stream(
    refusing: tuple[Site, Program], query: str, last_id: str, pointer: str
) -> None:
    site, program = refusing
    headers = {"Last-Event-ID": last_id} if last_id else {}
    answer = site.ask(program, f"/events{query}", **headers)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert answer.headers["content-type"] == "application/problem+json"
    assert httpx.get(f"{program.url}/events", timeout=120).status_code == 401


@pytest.fixture(scope="module")
def refusing(databases: Databases) -> Iterator[tuple[Site, Program]]:
    """A publisher for all refusals: none of them changes anything."""
    with live_site(databases) as site:
        yield site, site.publisher()


def test_sigterm_ends_streams_and_long_polls_at_once_and_loses_no_answer(site: Site) -> None:
    program = site.publisher()
    site.announce("sub", -1)
    waited_for = site.distribute(program, "/a")
    eventually(lambda: site.ask(program, "/subscribers").json()["subscribers"])
    clients = [site.client(program) for _ in range(5)]
    with ThreadPoolExecutor(4) as pool, ending(program):
        path = f"/distributions/{waited_for}?wait=60"
        polls = [pool.submit(site.ask, program, path) for _ in range(3)]
        waiting = len(clients) + len(polls) + 1  # who asks is in flight too
        eventually(lambda: in_flight(site, program) >= waiting, what="all of them wait")
        accepted = pool.submit(distribute_to_the_end, site, program)
        eventually(lambda: in_flight(site, program) > waiting, what="one is being published")
        os.kill(program.pid, signal.SIGTERM)
        assert program.wait(120) == 0
        assert "graceful shutdown exceeded" not in program.log.read_text()
        for poll in polls:
            assert poll.result().json()["state"] == "QUEUED"
    eventually(lambda: all(client.clean_end for client in clients))
    journaled = {placed.message.entry.package_id for placed in site.author.journaled()}
    assert accepted.result() <= journaled


@contextmanager
def ending(program: Program) -> Iterator[None]:
    """Let no request wait for a publisher that a failed test has left running."""
    try:
        yield
    finally:
        program.kill()


def in_flight(site: Site, program: Program) -> float:
    text = site.ask(program, "/metrics").text
    found = re.search(r"^packhorse_http_requests_in_flight (\S+)", text, re.MULTILINE)
    assert found
    return float(found[1])


def distribute_to_the_end(site: Site, program: Program) -> set[str]:
    """Distribute until the publisher is gone; return all that it said yes to."""
    accepted = set()
    while True:
        try:
            accepted.add(site.distribute(program, "/a"))
        except (httpx.TransportError, AssertionError):
            return accepted
