"""The topology's API over HTTP, on a topology that the test writes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from packhorse.topology.membership import StoreUnavailable
from packhorse_services.topology.connectors.states import ConnectorPhase, ConnectorState
from tests.harness.topology.scripted import NUMBERS, NoVotings, Scripted, cluster, scripted
from tests.harness.topology.served import Served, served
from tests.harness.waiting import eventually


class Site:
    def __init__(self, made: Scripted, site: Served) -> None:
        self.made, self.url = made, site.url

    def ask(self, method: str, path: str, token: str = "admin", **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", **more.pop("headers", {})}
        return httpx.request(method, f"{self.url}{path}", headers=headers, timeout=120, **more)

    def instances(self) -> list[str]:
        document = self.ask("GET", "/topology", "viewer").json()
        return [one["id"] for one in document["clusters"][0]["instances"]]


@pytest.fixture
def site() -> Iterator[Site]:
    made = scripted("other", cluster_view=NUMBERS)
    with served(made) as running:
        yield Site(made, running)


def test_the_newest_change_comes_first_in_the_history(site: Site) -> None:
    site.made.membership.become("me", "third")

    def newest() -> dict[str, Any] | None:
        changes = site.ask("GET", "/topology/history", "viewer").json()["changes"]
        return changes[0] if changes and changes[0]["kind"] == "CHANGED" else None

    change = eventually(newest, what="a change")
    assert (change["added"], change["removed"]) == (["third"], ["other"])
    assert site.ask("GET", "/topology/history", "editor").status_code == 403


def test_the_topology_has_all_clusters_the_own_one_first(site: Site) -> None:
    site.made.remotes.views = [
        cluster("x", "y", name="a-remote", properties={"x": {"packhorse.role": "subscriber"}})
    ]
    site.made.membership.wake()

    def both() -> dict[str, Any] | None:
        found = site.ask("GET", "/topology", "viewer").json()
        return found if len(found["clusters"]) == 2 and found["current"] else None

    document = eventually(both, what="both clusters")
    assert document["local_instance"] == "me"
    own, remote = document["clusters"]
    assert (own["id"], own["local"], own["leader"]) == ("cluster-1", True, "me")
    assert (remote["id"], remote["local"], remote["leader"]) == ("a-remote", False, "x")
    assert own["instances"][0] == {
        "id": "me",
        "cluster_id": "cluster-1",
        "leader": True,
        "local": True,
        "properties": {"packhorse.role": "topology"},
    }
    assert remote["instances"][0]["properties"] == {"packhorse.role": "subscriber"}


def test_an_unchanged_topology_is_304_and_a_changed_one_is_not(site: Site) -> None:
    tag = site.ask("GET", "/topology").headers["ETag"]
    unchanged = site.ask("GET", "/topology", headers={"If-None-Match": f'"x", W/{tag}'})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    site.made.membership.become("other", "me")
    eventually(lambda: site.instances() == ["other", "me"], what="another leader")
    changed = site.ask("GET", "/topology", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.json()["clusters"][0]["leader"] == "other"


def test_while_it_changes_the_last_view_is_shown_as_not_current(site: Site) -> None:
    site.made.membership.set_settled(False)
    eventually(lambda: not site.ask("GET", "/topology").json()["current"], what="changing")
    assert site.instances() == ["me", "other"]
    site.made.membership.set_settled(True)
    eventually(lambda: site.ask("GET", "/topology").json()["current"], what="agreed")


@pytest.mark.parametrize("name", ["me", "self"])
def test_an_instance_by_its_id_and_the_one_that_answers(site: Site, name: str) -> None:
    found = site.ask("GET", f"/topology/instances/{name}", "viewer").json()
    assert (found["id"], found["leader"], found["local"]) == ("me", True, True)
    assert site.ask("GET", "/topology/instances/other", "viewer").json()["local"] is False


def test_a_property_is_announced_and_taken_back(site: Site) -> None:
    path = "/topology/instances/self/properties/rack"
    hostile = "<script>alert('x')</script>\n\"\u2028"
    put = site.ask("PUT", path, json={"value": hostile})
    assert (put.status_code, put.json()) == (200, {"name": "rack", "value": hostile})

    def announced() -> str | None:
        instance = site.ask("GET", "/topology/instances/self", "viewer").json()
        value: str | None = instance["properties"].get("rack")
        return value

    assert eventually(announced, what="the property") == hostile
    assert site.ask("DELETE", path).status_code == 204
    eventually(lambda: announced() is None, what="the property is gone")
    assert site.ask("DELETE", path).status_code == 404


def test_a_property_stays_where_nobody_can_note_who_removes_it(site: Site) -> None:
    def fail() -> None:
        raise StoreUnavailable("the database is away")

    path = "/topology/instances/self/properties/rack"
    site.ask("PUT", path, json={"value": "7"})
    state = site.made.service.app.state
    parts, state.parts = state.parts, replace(state.parts, note_act=fail)
    assert site.ask("DELETE", path).status_code == 503
    state.parts = parts
    assert site.ask("DELETE", path).status_code == 204, "it was still there"


def test_what_a_provider_gives_is_nobodys_to_remove() -> None:
    noted: list[str] = []
    made = scripted(own={"load": "1"})
    state = made.service.app.state
    state.parts = replace(state.parts, note_act=lambda: noted.append("removed"))
    with served(made) as running:
        site = Site(made, running)
        assert site.ask("DELETE", "/topology/instances/self/properties/load").status_code == 404
    assert made.discovery.properties()["load"] == "1"
    assert noted == []


@pytest.mark.parametrize(
    ("name", "value", "status", "kind"),
    [
        ("rack", "x" * 4097, 413, "too-large"),
        ("rack", "\u00e9" * 2049, 413, "too-large"),
        ("rack", "a\0b", 422, "invalid-request"),
        ("rack", 1, 422, "invalid-request"),
        ("rack", None, 422, "invalid-request"),
        ("x" * 201, "x", 422, "invalid-request"),
        ("a%20b", "x", 422, "invalid-request"),
        ("a%0A", "x", 422, "invalid-request"),
        ("packhorse.duties", "cleanup", 422, "invalid-request"),
    ],
)
def test_what_no_instance_may_announce_is_refused(
    site: Site, name: str, value: Any, status: int, kind: str
) -> None:
    answer = site.ask("PUT", f"/topology/instances/self/properties/{name}", json={"value": value})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"/problems/{kind}"


def test_all_properties_together_are_bounded(site: Site) -> None:
    statuses = [
        site.ask(
            "PUT", f"/topology/instances/self/properties/p{number}", json={"value": "x" * 4096}
        ).status_code
        for number in range(17)
    ]
    assert statuses == [200] * 15 + [422] * 2


def test_the_cluster_by_its_numbers(site: Site) -> None:
    found = site.ask("GET", "/topology/cluster-view", "viewer").json()
    assert found == NUMBERS.model_dump()
    votings = site.ask("GET", "/topology/votings", "viewer")
    assert (votings.status_code, votings.json()["type"]) == (404, "/problems/not-found")


def test_votings_are_there_with_the_store_that_has_them() -> None:
    votings = NoVotings()
    made = scripted(votings=votings)
    with served(made) as running:
        site = Site(made, running)
        assert site.ask("GET", "/topology/cluster-view", "viewer").status_code == 404
        found = site.ask("GET", "/topology/votings", "viewer").json()
        assert found == {"established": "view-1", "previous": None, "votings": []}
        assert site.ask("POST", "/topology/votings", "viewer").status_code == 403
        assert site.ask("POST", "/topology/votings").status_code == 202
    assert votings.begun == 1


def test_connectors_with_their_state_and_their_next_exchange(site: Site) -> None:
    site.made.connectors.append(
        ConnectorState(
            direction="out",
            state=ConnectorPhase.FAILED,
            url="http://peer.example/topology/connector",
            holder="me",
            instance_id="",
            cluster_id="",
            address="",
            last_exchange_ms=None,
            next_exchange_in_s=30.0,
            interval_s=30.0,
            reason="nobody answers",
        )
    )
    [found] = site.ask("GET", "/topology/connectors", "viewer").json()["connectors"]
    assert (found["state"], found["reason"], found["last_exchange"]) == (
        "FAILED",
        "nobody answers",
        None,
    )
    assert found["next_exchange"].endswith("Z")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topology?all=1", 422),
        ("/topology/instances/nobody", 404),
        (f"/topology/instances/{'x' * 201}", 422),
        ("/topology/connectors?limit=1", 422),
        ("/topology/nothing", 404),
    ],
)
def test_wrong_requests_are_problems(site: Site, path: str, status: int) -> None:
    answer = site.ask("GET", path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_it_is_ready_while_its_heartbeat_succeeds(site: Site) -> None:
    assert site.ask("GET", "/readyz").status_code == 200
    site.made.membership.go_away(True)
    eventually(lambda: site.ask("GET", "/readyz").status_code == 503, what="not ready")
    assert site.ask("GET", "/topology").status_code == 200, "what was known is still shown"
    site.made.membership.go_away(False)
    eventually(lambda: site.ask("GET", "/readyz").status_code == 200, what="ready again")
