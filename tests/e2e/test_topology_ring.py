"""Three clusters in a ring of connectors as real processes: all see all, whoever dies goes."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.harness.postgres import Databases
from tests.harness.processes import Program, Programs, running_programs
from tests.harness.waiting import eventually

WAIT_S = 180.0
TIMES = {
    "topology_interval_s": 0.4,
    "topology_timeout_s": 5,
    "min_event_delay_s": 0.4,
}
CONNECTORS = {
    "connector_interval_s": 0.5,
    "connector_timeout_s": 5,
    "connector_backoff_factor": 1,
}


@dataclass(frozen=True)
class Ring:
    programs: Programs
    services: list[Program]
    content: Program

    def seen(self, service: Program) -> dict[str, list[str]]:
        """Return the instances of each cluster that a service knows now; empty while it changes."""
        document = self.ask(service)
        if not document["current"]:
            return {}
        return {
            one["id"]: sorted(instance["id"] for instance in one["instances"])
            for one in document["clusters"]
        }

    def ask(self, service: Program) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.programs.token}"}
        answer = httpx.get(f"{service.url}/topology", headers=headers, timeout=120)
        document: dict[str, Any] = answer.raise_for_status().json()
        return document

    def agree(self, *services: Program) -> dict[str, list[str]]:
        """Wait until these see the same: their own clusters and no other."""

        def agreed() -> dict[str, list[str]]:
            first, *others = [self.seen(one) for one in services]
            assert len(first) == len(services), first
            assert all(other == first for other in others), (first, others)
            return first

        return eventually(agreed, timeout=WAIT_S, what=f"{len(services)} clusters see each other")


@pytest.fixture(scope="module")
def ring(databases: Databases) -> Iterator[Ring]:
    journal_url = databases.new("journal")
    key = secrets.token_hex(32)
    with running_programs(journal_url, **TIMES) as made:
        urls = [databases.new("cluster") for _ in range(3)]
        options = {**CONNECTORS, "connector_shared_key": key}
        services = [
            made.topology(url, instance_id=f"topology-{number}", **options)
            for number, url in enumerate(urls)
        ]
        for one, following in zip(services, [*services[1:], services[0]], strict=True):
            one.environment["PACKHORSE_CONNECTOR_URLS"] = following.url
        content = made.content(
            urls[0], instance_id="content-0", endpoint="http://content.example.com"
        )
        made.start()
        yield Ring(made, services, content)


def test_a_cluster_of_a_ring_dies_and_comes_back(ring: Ring) -> None:
    whole = [["content-0", "topology-0"], ["topology-1"], ["topology-2"]]

    def complete() -> dict[str, list[str]]:  # a program may serve before it has joined
        seen = ring.agree(*ring.services)
        return seen if sorted(seen.values()) == whole else {}

    before = eventually(complete, timeout=WAIT_S, what="every program has joined")

    def announced() -> dict[str, str] | None:
        clusters = ring.ask(ring.services[2])["clusters"]
        found = {one["id"]: one["properties"] for each in clusters for one in each["instances"]}
        return found.get("content-0")

    properties = eventually(announced, timeout=WAIT_S, what="content-0 is seen")
    assert properties is not None
    assert properties["packhorse.role"] == "content"
    assert properties["packhorse.endpoint"] == "http://content.example.com"

    first, dying, last = ring.services
    dying.kill()
    left = ring.agree(first, last)
    [gone] = set(before) - set(left)
    assert before[gone] == ["topology-1"]

    dying.start()
    dying.ready()
    eventually(lambda: ring.agree(*ring.services) == before, "it is back with the same id")


def test_an_instance_that_leaves_goes_from_all_clusters(ring: Ring) -> None:
    ring.agree(*ring.services)
    assert ring.content.stop() == 0, ring.content.said()

    def left_everywhere() -> bool:
        seen = [ring.seen(one).values() for one in ring.services]
        left = [[f"topology-{number}"] for number in range(3)]
        return all(sorted(clusters) == left for clusters in seen)

    eventually(left_everywhere, timeout=WAIT_S, what="all clusters have heard of it")
    ring.content.start()
