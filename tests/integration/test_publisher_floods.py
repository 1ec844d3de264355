"""R33: what one client does with its connections to a publisher, others are served meanwhile."""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.harness.floods import DEADLINE_S, address_of, connected, head, statuses
from tests.harness.postgres import Databases
from tests.harness.site import Site, site
from tests.harness.waiting import eventually

HOSTILE = "hostile-token-of-more-than-20-characters"
WAITS_OF_ONE = 50


@pytest.fixture(scope="module")
def running(databases: Databases) -> Iterator[Site]:
    """A publisher and a paused subscriber, so that there is something to wait for."""
    with site(databases, databases.new("journal")) as made:
        tokens = json.loads(made.programs.tokens.read_text())
        tokens["tokens"].append({"name": "hostile", "token": HOSTILE, "scopes": ["queues:read"]})
        made.programs.tokens.write_text(json.dumps(tokens))
        made.publisher.start()
        made.publisher.ready()
        made.join("sub1")
        made.http.put(f"{made.publisher.url}/subscribers/sub1/pause").raise_for_status()
        eventually(lambda: made.queue("sub1")["state"] == "PAUSED", what="it is paused")
        yield made


def serves(running: Site) -> None:
    """Check that an honest caller may publish and look, and that probes are answered."""
    running.distribute("/a", action="TEST")
    assert running.get("/queues")["agent"] == "main"
    for probe in ("/livez", "/readyz"):
        url = running.publisher.url + probe
        eventually(lambda url=url: httpx.get(url, timeout=DEADLINE_S).is_success, probe)  # type: ignore[misc]


def test_500_abandoned_waits_stop_no_publisher(running: Site) -> None:
    address = address_of(running.publisher.url)
    awaited = running.distribute("/a", action="TEST")
    ask = head(f"GET /distributions/{awaited['id']}?wait=60", HOSTILE)
    with connected(address, 500, ask) as waiting:
        serves(running)
        eventually(
            lambda: statuses(waiting) == [429] * (500 - WAITS_OF_ONE),
            timeout=DEADLINE_S,
            what="all but one caller's share is refused",
        )

    def as_many_as_before() -> bool:
        with connected(address, WAITS_OF_ONE, ask) as waiting:
            serves(running)
            return not statuses(waiting)

    eventually(as_many_as_before, timeout=DEADLINE_S, what="their places are free again")
