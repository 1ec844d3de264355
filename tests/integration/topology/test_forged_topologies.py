"""Signed announcements that no honest peer sends: refused with a reason, or cut."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from packhorse.topology.rejection import RejectionReason
from tests.harness.postgres import Databases
from tests.harness.topology.clusters import Cluster, cluster, running
from tests.harness.topology.strangers import Stranger, rejected

Document = dict[str, Any]


@pytest.fixture(scope="module")
def peer(databases: Databases) -> Iterator[Cluster]:
    one = Cluster("one", databases.new(), own=cluster("one", "one-1", "one-2"), timeout_s=60.0)
    with running(one):
        yield one


@pytest.fixture
def far(peer: Cluster) -> Iterator[Stranger]:
    stranger = Stranger(peer)
    yield stranger
    stranger.close()


def instance(name: str, *, leader: bool = False, **properties: str) -> Document:
    return {"id": name, "leader": leader, "properties": properties}


def further(name: str, *path: str) -> Document:
    return {"id": name, "instances": [instance(f"{name}-1", leader=True)], "path": list(path)}


def two_leaders(reported: Document) -> None:
    reported["local_cluster"]["instances"].append(instance("far-2", leader=True))


def of_another(reported: Document) -> None:
    reported["local_cluster"]["instances"].append(instance("far-2"))
    reported["owner"] = "far-2"


def many_instances(reported: Document) -> None:
    reported["local_cluster"]["instances"] += [instance(f"x{n}") for n in range(9_999)]


def many_clusters(reported: Document) -> None:
    reported["clusters"] = [further(f"c{n}", "far", f"c{n}") for n in range(300)]


def nested(reported: Document) -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    reported["clusters"] = [deep]


def set_at(*path: Any, value: Any) -> Callable[[Document], None]:
    def change(reported: Document) -> None:
        found: Any = reported
        for step in path[:-1]:
            found = found[step]
        found[path[-1]] = value

    return change


FIRST = ("local_cluster", "instances", 0)
FORGED: dict[str, tuple[Callable[[Document], None], int, str]] = {
    "another owner": (of_another, 422, "another instance"),
    "owner elsewhere": (set_at(*FIRST, "id", value="other"), 422, "no instance of the cluster"),
    "our cluster": (set_at("local_cluster", "id", value="one"), 409, "which is ours"),
    "our instance": (
        set_at(
            "local_cluster", "instances", value=[instance("far-1"), instance("one-2", leader=True)]
        ),
        409,
        "one-2 is an instance of our cluster",
    ),
    "no leader": (set_at(*FIRST, "leader", value=False), 422, "exactly one leader"),
    "two leaders": (two_leaders, 422, "exactly one leader"),
    "an instance twice": (
        set_at(
            "local_cluster", "instances", value=[instance("far-1", leader=True), instance("far-1")]
        ),
        422,
        "one instance is listed twice",
    ),
    "nobody": (set_at("local_cluster", "instances", value=[]), 422, "at least 1 item"),
    "10,000 instances": (many_instances, 422, "at most 1000 items"),
    "300 clusters": (many_clusters, 422, "at most 255 items"),
    "a cluster twice": (
        set_at("clusters", value=[further("c", "far", "c"), further("c", "far", "d", "c")]),
        422,
        "one cluster is listed twice",
    ),
    "a path of somebody else": (
        set_at("clusters", value=[further("c", "near", "c")]),
        422,
        "from the sender's cluster",
    ),
    "a path to somewhere else": (
        set_at("clusters", value=[further("c", "far", "d")]),
        422,
        "from the sender's cluster",
    ),
    "a path with a loop": (
        set_at("clusters", value=[further("c", "far", "d", "e", "d", "c")]),
        422,
        "a path is a loop",
    ),
    "an endless path": (
        set_at("clusters", value=[further("c", "far", *(f"p{n}" for n in range(50)), "c")]),
        422,
        "at most 32 items",
    ),
    "nested": (nested, 422, "must be an object"),
    "a huge property": (set_at(*FIRST, "properties", value={"a": "x" * 5_000}), 422, "4096"),
    "huge properties": (
        set_at(*FIRST, "properties", value={f"a{n}": "x" * 4_000 for n in range(20)}),
        422,
        "65536 bytes",
    ),
    "a property's name": (set_at(*FIRST, "properties", value={"a b": "x"}), 422, "letters"),
    "U+0000": (set_at(*FIRST, "properties", value={"a": "\0"}), 422, "U+0000"),
    "half a pair": (set_at(*FIRST, "properties", value={"a": "\ud800"}), 422, "surrogate"),
    "an id": (set_at("local_cluster", "id", value="a/../b"), 422, "local_cluster.id"),
    "unknown member": (set_at("admin", value=True), 422, "admin"),
    "another version": (set_at("protocol_version", value=2), 422, "protocol_version"),
    "coercion": (set_at("protocol_version", value="1"), 422, "protocol_version"),
    "an eternal back-off": (set_at("backoff_interval_s", value=1e9), 422, "backoff_interval_s"),
    "a negative back-off": (set_at("backoff_interval_s", value=-1), 422, "backoff_interval_s"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_topologies_are_refused(peer: Cluster, far: Stranger, name: str) -> None:
    change, status, reason = FORGED[name]
    reported = copy.deepcopy(far.document())
    change(reported)
    before = rejected(RejectionReason.ANNOUNCEMENT)
    answer = far.send_json(reported)
    assert (answer.status_code, rejected(RejectionReason.ANNOUNCEMENT)) == (status, before + 1)
    assert reason in answer.json()["detail"]
    assert peer.remotes() == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[" * 400_000,
        b"[" * 1_000 + b"]" * 1_000,
        b'{"a":' * 1_000 + b"1" + b"}" * 1_000,
        b"[" + b"1," * 200_000 + b"1]",
        b'{"owner":"far-1","owner":"far-1"}',
        b'{"backoff_interval_s":NaN}',
        b"\xff\xfe",
        b"1" * 100_000,
    ],
)
def test_what_is_no_announcement_is_refused(far: Stranger, body: bytes) -> None:
    answer = far.send_json(body)
    assert answer.status_code == 422
    assert answer.json()["detail"]


def test_news_of_ourselves_is_cut(peer: Cluster, far: Stranger) -> None:
    ours = {**further("d", "far", "d"), "instances": [instance("one-1", leader=True)]}
    reported = far.document(
        clusters=[further("c", "far", "c"), further("b", "far", "one", "b"), ours]
    )
    assert far.send_json(reported).status_code == 200
    assert peer.remotes() == ["c", "far"]
    assert far.send(far.signed(method="DELETE")).status_code == 204


def test_a_nearer_word_wins(peer: Cluster, far: Stranger) -> None:
    true = Stranger(peer, "c")
    lie = {**further("c", "far", "c"), "instances": [instance("evil", leader=True)]}
    assert far.send_json(far.document(clusters=[lie])).status_code == 200
    assert peer.remote("c").ids == ("evil",)
    assert true.send(true.signed()).status_code == 200
    assert peer.remote("c").ids == ("c-1",)
    for one in (far, true):
        assert one.send(one.signed(method="DELETE")).status_code == 204
    true.close()


def test_there_is_an_end_to_how_many_may_come(
    peer: Cluster, far: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhorse.topology.announcement_store.MAX_PEERS", 1)
    other = Stranger(peer, "other")
    assert far.send(far.signed()).status_code == 200
    answer = other.send(other.signed())
    assert (answer.status_code, far.send(far.signed()).status_code) == (409, 200)
    assert far.send(far.signed(method="DELETE")).status_code == 204
    assert other.send(other.signed()).status_code == 200
    assert other.send(other.signed(method="DELETE")).status_code == 204
    other.close()
