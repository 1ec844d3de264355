"""The program `packhorse-topology` on a real database, with both stores."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse.db.connect import connect
from tests.harness.command_line import packhorse_program
from tests.harness.imported import COMMAND_LINE
from tests.harness.postgres import Databases
from tests.harness.processes import Process, Program, Programs, first_lines, running_programs
from tests.harness.sse import EventClient
from tests.harness.waiting import eventually

INTERVAL_S = {"lease": "0.2", "voting": "0.5"}
SHORT_TIMEOUT_S = "5"
TIMEOUT_S = {"lease": "60", "voting": SHORT_TIMEOUT_S}  # a first voting takes a time-out
WAIT_S = 180.0


class Cluster:
    """Two topology services on one database."""

    def __init__(self, made: Programs, url: str, store: str, timeout_s: str = "") -> None:
        self.programs, self.url, self.store = made, url, store
        self.one, self.two = (
            made.topology(
                url,
                instance_id=name,
                topology_store=store,
                topology_interval_s=INTERVAL_S[store],
                topology_timeout_s=timeout_s or TIMEOUT_S[store],
                min_event_delay_s="0.1",
            )
            for name in ("one", "two")
        )
        made.start()
        eventually(
            lambda: all(
                sorted(self.instances(program)) == ["one", "two"]
                for program in (self.one, self.two)
            ),
            timeout=WAIT_S,
            what="both in the view of both",
        )

    def ask(self, program: Program, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.programs.token}"}
        return httpx.request(method, f"{program.url}{path}", headers=headers, timeout=120, **more)

    def instances(self, program: Program) -> list[str]:
        found = self.ask(program, "GET", "/topology").json()
        if not found["current"]:
            return []
        return [one["id"] for one in found["clusters"][0]["instances"]]

    def packhorse(self, *arguments: str) -> tuple[str, ...]:
        return ("--server", self.one.url, "--token", self.programs.token, *arguments)


@pytest.fixture(params=["lease", "voting"])
def both(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Cluster]:
    with running_programs("memory://unused") as made:
        yield Cluster(made, databases.new(), request.param)


@pytest.fixture(params=["lease", "voting"])
def mortal(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Cluster]:
    """Two whose death is soon noticed; one that only stood still may be taken for dead too."""
    with running_programs("memory://unused") as made:
        yield Cluster(made, databases.new(), request.param, SHORT_TIMEOUT_S)


def test_two_services_see_each_other_and_show_what_only_their_store_knows(both: Cluster) -> None:
    put = both.ask(both.one, "PUT", "/topology/instances/self/properties/rack", json={"value": "7"})
    assert put.status_code == 200

    def seen() -> bool:
        found = both.ask(both.two, "GET", "/topology/instances/one").json()
        return bool(found.get("properties", {}).get("rack") == "7")  # it may not be there yet

    eventually(seen, timeout=WAIT_S, what="the other one sees it")
    document = both.ask(both.two, "GET", "/topology/instances/one").json()
    assert document["properties"]["packhorse.role"] == "topology"
    assert document["local"] is False
    acts = ["putProperty"]
    if both.store == "voting":
        _check_voting(both)
        acts.append("startVoting")
    else:
        _check_lease(both)
    with connect(both.url, "tests") as connection:
        rows = connection.execute("SELECT issued_by, action FROM bookkeeping.audit").fetchall()
    assert sorted(rows) == [("admin", act) for act in acts]


def _check_voting(both: Cluster) -> None:
    assert both.ask(both.one, "GET", "/topology/cluster-view").status_code == 404

    def established() -> Any:
        return both.ask(both.one, "GET", "/topology/votings").json()["established"]

    before = established()
    assert both.ask(both.one, "POST", "/topology/votings").status_code == 202
    eventually(lambda: established() != before, timeout=WAIT_S, what="a new view is established")


def _check_lease(both: Cluster) -> None:
    assert both.ask(both.one, "GET", "/topology/votings").status_code == 404
    document = both.ask(both.one, "GET", "/topology/cluster-view").json()
    assert document["final"]
    assert len(document["active"]) == 2
    assert sorted(document["instances"].values()) == ["one", "two"]
    assert document["instances"][str(document["me"])] == "one"


def test_a_killed_leader_is_replaced_and_everybody_is_notified(mortal: Cluster) -> None:
    leader, other = mortal.one, mortal.two
    if eventually(lambda: mortal.instances(mortal.one), timeout=WAIT_S)[0] == "two":
        leader, other = mortal.two, mortal.one
    client = EventClient(f"{other.url}/topology", mortal.programs.token)

    def is_removed() -> bool:
        gone = leader.environment["PACKHORSE_INSTANCE_ID"]
        return any(gone in changed["removed"] for changed in client.events("CHANGED"))

    try:
        client.until(lambda c: c.events("INIT"))
        leader.kill()
        eventually(is_removed, timeout=WAIT_S, what="CHANGED")
        names = [block.event for block in client.blocks if block.data]
        assert names[:3] == ["INIT", "CHANGING", "CHANGED"]
        assert other.stop() == 0, "SIGTERM ends the stream, and so the process"
        eventually(lambda: client.clean_end is not None, what="the end of the stream")
        assert client.clean_end
    finally:
        client.close()


@pytest.mark.parametrize(
    "both", ["lease", pytest.param("voting", marks=pytest.mark.depth)], indirect=True
)
def test_the_command_line_shows_and_follows_it(both: Cluster, tmp_path: Path) -> None:
    """It speaks to the service, which answers alike whatever its store is."""
    shown = packhorse_program(*both.packhorse("get", "instances", "-o", "name"))
    assert sorted(shown.stdout.split()) == ["one", "two"]
    watching = both.packhorse("topology", "watch", "-o", "json")
    watch = Process("watch", (sys.executable, "-m", COMMAND_LINE, *watching), {}, tmp_path)

    def events(count: int) -> list[str]:
        return [json.loads(line)["event"] for line in first_lines(watch, count)]

    watch.start()
    try:
        assert events(1) == ["INIT"]
        both.two.stop()
        assert events(3) == ["INIT", "CHANGING", "CHANGED"]
        both.one.restart()
        assert events(5)[3:] in (["CHANGING", "gap"], ["gap", "INIT"])
        os.kill(watch.pid, signal.SIGINT)
        assert watch.wait() == 130
        assert "Traceback" not in watch.log.read_text()
    finally:
        watch.kill()
