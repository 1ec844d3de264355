"""The program `packhorse-jobs` on a real database: two of them, one killed, and their end."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from tests.harness.postgres import Databases, end_sessions
from tests.harness.processes import Program, Programs, running_programs
from tests.harness.sse import EventClient
from tests.harness.waiting import eventually

WAIT_S = 120.0
FAST = {"topology_interval_s": 0.4, "topology_timeout_s": 4, "min_event_delay_s": 0.2}
OWN = {
    f"packhorse.{name}"
    for name in ("forget-request-keys", "forget-ticks", "prune-events", "prune-history")
}


class Pair:
    """Two jobs services of one cluster."""

    def __init__(self, made: Programs, url: str) -> None:
        self.programs, self.database_url = made, url
        self.one, self.two = (made.jobs(url, instance_id=name, **FAST) for name in ("one", "two"))
        made.start()

    def ask(self, program: Program, method: str, path: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.programs.token}", **more.pop("headers", {})}
        answer = httpx.request(method, program.url + path, headers=headers, timeout=120, **more)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def follow(self, program: Program, last_id: str = "", **query: str) -> EventClient:
        return EventClient(program.url, self.programs.token, last_id, **query)


@pytest.fixture(scope="module")
def pair(databases: Databases) -> Iterator[Pair]:
    with running_programs("memory://unused") as made:
        yield Pair(made, databases.new())


def topics(client: EventClient) -> list[str]:
    return [one["topic"].rpartition("/")[2] for one in client.events("event")]


def test_its_own_work_has_schedules_and_is_done_by_one_of_the_two(pair: Pair) -> None:
    def shown() -> dict[str, Any]:
        found = pair.ask(pair.one, "GET", "/schedules")["schedules"]
        return {one["name"]: one for one in found}

    eventually(lambda: shown().keys() >= OWN, timeout=WAIT_S, what="they are declared")
    name = "packhorse.prune-history"
    old = "INSERT INTO jobs.finished (number, topic, application, created_at, ready_at, queue, "
    old += "max_retries, state, finished_at) VALUES (9000000, 'a', '', now(), now(), 'main', 1, "
    with psycopg.connect(pair.database_url) as connection:
        connection.execute(old + "'SUCCEEDED', now() - interval '8 days')")
    body = {"period_s": 1, "topic": shown()[name]["topic"], "times": 3, "concurrent": False}
    body["properties"] = shown()[name]["properties"]
    pair.ask(pair.two, "PUT", f"/schedules/{name}", json=body)
    eventually(
        lambda: shown()[name]["next_fire_time"] is None, timeout=WAIT_S, what="three moments"
    )
    fire_times = pair.ask(pair.one, "GET", f"/schedules/{name}/fire-times")["fire_times"]
    assert [one["outcome"] for one in fire_times].count("FIRED") == 3
    assert len({number for one in fire_times for number in one["jobs"]}) == 3
    eventually(lambda: not _known(pair, 9_000_000), timeout=WAIT_S, what="it is forgotten")


def _known(pair: Pair, number: int) -> bool:
    with psycopg.connect(pair.database_url) as connection:
        rows = connection.execute("SELECT FROM jobs.finished WHERE number = %s", (number,))
        return rows.fetchone() is not None


def test_a_stream_goes_on_at_the_other_service_when_the_first_is_killed(pair: Pair) -> None:
    client = pair.follow(pair.one, topic="shop/*")
    for n in range(3):
        pair.ask(pair.two, "POST", "/events", json={"topic": f"shop/{n}"})
    client.until(lambda c: topics(c) == ["0", "1", "2"])
    pair.one.kill()
    pair.ask(pair.two, "POST", "/events", json={"topic": "shop/3"})
    again = pair.follow(pair.two, client.last_id, topic="shop/*")
    again.until(lambda c: topics(c) == ["3"])
    for each in (client, again):
        each.close()
    pair.one.start()
    pair.one.ready()


def test_the_same_key_is_one_job_at_both(pair: Pair) -> None:
    sent = {"json": {"topic": "nobody/does"}, "headers": {"Idempotency-Key": "k"}}
    numbers = {
        pair.ask(program, "POST", "/jobs", json=sent["json"], headers=sent["headers"])["job"][
            "number"
        ]
        for program in (pair.one, pair.two, pair.one)
    }
    assert len(numbers) == 1

    def waiting() -> Any:
        found = pair.ask(pair.two, "GET", "/job-topics")
        since = {one["topic"]: one["unconsumed_since"] for one in found["topics"]}
        return found["current"] and since.get("nobody/does")

    eventually(waiting, timeout=WAIT_S, what="it is seen that nobody does it")


def test_a_suspended_queue_stays_so_over_a_restart_of_all(pair: Pair) -> None:
    pair.ask(pair.one, "POST", "/job-queues/housekeeping/suspend")
    for program in (pair.one, pair.two):
        program.restart()
    assert pair.ask(pair.two, "GET", "/job-queues/housekeeping")["suspended"] is True
    pair.ask(pair.two, "POST", "/job-queues/housekeeping/resume")


def test_it_ends_at_once_though_streams_are_open(pair: Pair) -> None:
    client = pair.follow(pair.two)
    client.until(lambda c: c.blocks)
    assert pair.two.stop(timeout=120) == 0
    eventually(lambda: client.clean_end is not None, what="the stream's end")
    assert client.clean_end is True
    client.close()
    pair.two.start()
    pair.two.ready()


def test_without_its_database_it_is_not_ready_and_says_why(databases: Databases) -> None:
    with running_programs("memory://unused") as made:
        program = made.jobs(databases.new(), **FAST)
        made.start()
        with psycopg.connect(program.environment["PACKHORSE_DATABASE_URL"]) as connection:
            name = connection.info.dbname
        with psycopg.connect(
            databases.server.ensure_database("postgres"), autocommit=True
        ) as admin:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            end_sessions(admin, database=name)
            try:
                eventually(
                    lambda: httpx.get(f"{program.url}/readyz", timeout=120).status_code == 503,
                    timeout=WAIT_S,
                    what="not ready",
                )
                headers = {"Authorization": f"Bearer {made.token}"}
                answer = httpx.get(f"{program.url}/jobs", headers=headers, timeout=120)
                assert (answer.status_code, answer.json()["title"]) == (
                    503,
                    "Not available right now",
                )
            finally:
                admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        eventually(
            lambda: httpx.get(f"{program.url}/readyz", timeout=120).status_code == 200,
            timeout=WAIT_S,
            what="ready again",
        )
        assert program.running
        lines = [json.loads(line) for line in program.log.read_text().splitlines()]
        assert not [one for one in lines if one["level"] == "critical"]
        assert program.stop(timeout=120) == 0
