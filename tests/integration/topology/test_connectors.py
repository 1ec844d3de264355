"""Connectors between clusters over real HTTP: shapes, fallback, loss, change, end."""

from socket import create_server

import pytest

from packhorse_services.cli.stack.ports import free_port, free_ports
from packhorse_services.topology.connectors.states import ConnectorPhase
from tests.harness.postgres import Databases
from tests.harness.topology.clusters import Cluster, cluster, running, until_known
from tests.harness.waiting import eventually


@pytest.mark.parametrize("encryption", [False, True])
def test_two_clusters_know_each_other_by_one_connector(
    databases: Databases, encryption: bool
) -> None:
    one = Cluster("one", databases.new(), encryption=encryption)
    two = Cluster("two", databases.new(), encryption=encryption, urls=(one.url,))
    with running(one, two):
        until_known(one, ["two"])
        until_known(two, ["one"])
        eventually(lambda: two.states() == [ConnectorPhase.CONNECTED])
        eventually(lambda: incoming(one) == [("in", "two-1", "127.0.0.1")])


def incoming(one: Cluster) -> list[tuple[str, str, str]]:
    return [(seen.direction, seen.instance_id, seen.address) for seen in one.all_states()]


def test_it_works_without_signatures_too(databases: Databases) -> None:
    one = Cluster("one", databases.new(), shared_key=None, allow="127.0.0.1")
    two = Cluster("two", databases.new(), shared_key=None, urls=(one.url,), gzip=False)
    with running(one, two):
        until_known(one, ["two"])
        until_known(two, ["one"])


def test_a_chain_of_four(databases: Databases) -> None:
    chain: list[Cluster] = []
    for name in "abcd":
        urls = (chain[-1].url,) if chain else ()
        chain.append(Cluster(name, databases.new(), urls=urls))
    with running(*chain):
        for one in chain:
            until_known(one, set("abcd") - {one.topology.own.id})


def test_a_ring_of_three_forgets_whoever_goes(databases: Databases) -> None:
    ports = free_ports(3)
    ring = [
        Cluster(
            name,
            databases.new(),
            port=ports[number],
            urls=(f"http://127.0.0.1:{ports[(number + 1) % 3]}",),
        )
        for number, name in enumerate("abc")
    ]
    with running(*ring):
        until_known(ring[0], "bc")
        until_known(ring[1], "ac")
        until_known(ring[2], "ab")
        ring[2].stop()
        until_known(ring[0], "b")
        until_known(ring[1], "a")


def test_a_cluster_that_dies_is_forgotten_after_the_time_out(databases: Databases) -> None:
    one = Cluster("one", databases.new())
    two = Cluster("two", databases.new(), urls=(one.url,))
    with running(one, two):
        until_known(two, ["one"])
        one.stop_serving()  # announces no end
        eventually(lambda: two.states() == [ConnectorPhase.FAILED])
        until_known(two, [])


def test_a_dead_peer_delays_nobody(databases: Databases) -> None:
    with create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        dead = [f"http://127.0.0.1:{silent.getsockname()[1]}", f"http://127.0.0.1:{free_port()}"]
        one = Cluster("one", databases.new())
        two = Cluster("two", databases.new(), urls=(*dead, one.url), read_timeout_s=60.0)
        with running(one, two):
            until_known(two, ["one"])
            expected = [ConnectorPhase.WAITING, ConnectorPhase.FAILED, ConnectorPhase.CONNECTED]
            eventually(lambda: two.states() == expected)
            one.topology.change(cluster("one", "one-1", "one-2"))
            eventually(lambda: len(two.remote("one").instances) == 2)
            assert two.states()[0] is ConnectorPhase.WAITING, (
                "the first peer still holds its thread"
            )


def test_a_second_url_of_a_cluster_stands_by_and_steps_in(databases: Databases) -> None:
    shared = databases.new()
    own = cluster("one", "one-1", "one-2")
    first = Cluster("one", shared, instance="one-1", own=own)
    second = Cluster("one", shared, instance="one-2", own=own)
    two = Cluster("two", databases.new(), urls=(first.url, second.url), timeout_s=4.0)
    with running(first, second, two):
        eventually(lambda: two.states() == [ConnectorPhase.CONNECTED, ConnectorPhase.STANDBY])
        first.stop_serving()
        eventually(lambda: two.states() == [ConnectorPhase.FAILED, ConnectorPhase.CONNECTED])
        until_known(two, ["one"])  # where the change took longer than the time-out, it comes again


def test_a_change_and_an_end_are_announced_at_once(databases: Databases) -> None:
    calm = {"interval_s": 50.0, "timeout_s": 100.0}
    one = Cluster("one", databases.new(), **calm)
    two = Cluster("two", databases.new(), urls=(one.url,), **calm)
    with running(one, two):
        until_known(one, ["two"])
        two.topology.change(cluster("two", "two-1", role="subscriber"))
        eventually(lambda: one.remote("two").instances[0].properties == {"role": "subscriber"})
        two.stop()
        until_known(one, [])
        until_known(two, [])


def test_news_pass_through_a_chain_at_once(databases: Databases) -> None:
    calm = {"interval_s": 50.0, "timeout_s": 100.0}
    end = Cluster("end", databases.new(), **calm)
    middle = Cluster("middle", databases.new(), urls=(end.url,), **calm)
    start = Cluster("start", databases.new(), urls=(middle.url,), **calm)
    with running(end, middle):
        until_known(end, ["middle"])
        with running(start):
            until_known(end, ["middle", "start"])


def test_a_connector_into_the_own_cluster_is_a_loop(databases: Databases) -> None:
    shared, own = databases.new(), cluster("one", "one-1", "one-2")
    first = Cluster("one", shared, instance="one-1", own=own)
    second = Cluster("one", shared, instance="one-2", own=own, urls=(first.url,))
    with running(first, second):
        eventually(lambda: second.states() == [ConnectorPhase.LOOP])
        assert first.remotes() == second.remotes() == []


def test_another_shared_key_connects_nobody(databases: Databases) -> None:
    one = Cluster("one", databases.new())
    two = Cluster("two", databases.new(), urls=(one.url,), shared_key="another" * 8)
    with running(one, two):
        eventually(lambda: two.states() == [ConnectorPhase.FAILED])
        eventually(lambda: ["401" in state.reason for state in two.outgoing()] == [True])
        assert one.remotes() == two.remotes() == []


def test_keys_are_replaced_one_cluster_after_the_other(databases: Databases) -> None:
    old, new = "o" * 32, "n" * 32
    one = Cluster("one", databases.new(), shared_key=new, other_key=old, encryption=True)
    two = Cluster("two", databases.new(), urls=(one.url,), shared_key=old, encryption=True)
    with running(one, two):
        until_known(one, ["two"])
        until_known(two, ["one"])
