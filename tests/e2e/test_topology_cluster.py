"""Five instances on one Postgres as real processes: killed, paused, cut off, restarted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.topology_instances import (
    WAIT_S,
    Cluster,
    Instance,
    check_events,
    check_work,
    cluster,
)
from tests.harness.cutting_proxy import cutting_proxy
from tests.harness.postgres import Databases
from tests.harness.waiting import eventually

NAMES = ["a", "b", "c", "d", "e"]
CUT_OFF_S = 20.0
"""The lease where those that are left judge by themselves: all may stand still for half of it."""


@pytest.fixture
def five(databases: Databases) -> Iterator[Cluster]:
    with cluster(databases.new("topology")) as made:
        for name in NAMES:
            made.add(name)
        yield made


def refusals(one: Instance) -> list[int]:
    return [line["refused"] for line in one.run() if "refused" in line]


def works(made: Cluster, name: str) -> None:
    """Wait until this instance does the work, and goes on doing it."""
    eventually(lambda: made.holder() == name, timeout=WAIT_S, what=f"{name} has the leader task")
    before = made.pieces()
    eventually(lambda: made.pieces() > before, timeout=WAIT_S, what=f"{name} works")


def finds_fault(url: str) -> bool:
    try:
        check_work(url)
    except AssertionError as error:
        return "lost the leader task" in str(error)
    return False


def test_a_killed_leader_is_replaced_and_comes_back_last(five: Cluster) -> None:
    leader, *others = five.agreed_order()
    works(five, leader)
    five.instances[leader].kill()
    five.retire(leader)
    five.await_order(*others)
    works(five, others[0])
    five.instances[leader].start()
    five.await_order(*others, leader)
    assert five.holder() == others[0]
    check_events(list(five.instances.values()))
    check_work(five.url)


def test_restarted_one_by_one_each_goes_last(five: Cluster) -> None:
    order = five.agreed_order()
    for name in order[:3]:  # the leader is the first of them
        one = five.instances[name]
        assert one.stop() == 0, one.said()
        order = [other for other in order if other != name]
        five.await_order(*order)  # it has left, so nobody waits for its lease to run out
        one.start()
        order = [*order, name]
        five.await_order(*order)
    works(five, order[0])
    check_events(list(five.instances.values()))
    check_work(five.url)


def test_a_paused_leader_cannot_act_when_it_goes_on(five: Cluster) -> None:
    leader, *others = five.agreed_order()
    works(five, leader)
    paused = five.instances[leader]
    paused.pause()
    five.retire(leader)
    five.await_order(*others)
    works(five, others[0])
    assert not refusals(paused)
    paused.resume()
    eventually(lambda: refusals(paused), timeout=WAIT_S, what="its token is refused")
    five.await_order(*others, leader)
    works(five, others[0])
    check_events(list(five.instances.values()))
    check_work(five.url)


@pytest.mark.proof
def test_the_check_of_the_work_finds_a_leader_that_is_not_fenced(databases: Databases) -> None:
    with cluster(databases.new("topology")) as made:
        paused = made.add("a", unfenced=True)
        works(made, "a")
        made.add("b")
        made.await_order("a", "b")
        paused.pause()
        made.retire("a")
        works(made, "b")
        paused.resume()
        eventually(lambda: finds_fault(made.url), timeout=WAIT_S, what="its work is found")


def test_an_instance_that_is_cut_off_is_left_out_and_comes_back_last(databases: Databases) -> None:
    url = databases.new("topology")
    server = databases.server
    with (
        cutting_proxy("127.0.0.1", server.port, seed=1, faults=0) as proxy,
        cluster(url, CUT_OFF_S) as made,
    ):
        behind = url.replace(f":{server.port}", f":{proxy.port}")
        assert behind != url
        made.add("a", url=behind)
        works(made, "a")
        for name in NAMES[1:]:
            made.add(name)
        leader, *others = made.agreed_order()
        assert leader == "a"
        proxy.cut()
        eventually(lambda: made.instances["a"].view() is None, timeout=WAIT_S, what="its view ends")
        made.await_order(*others)
        works(made, others[0])
        proxy.heal()
        made.await_order(*others, "a")
        check_events(list(made.instances.values()))
        check_work(made.url)


@pytest.mark.parametrize(
    "reported",
    [
        [("INIT", 1, "ab"), ("CHANGED", 2, "ab")],
        [("INIT", 1, "ab"), ("CHANGING", 0, ""), ("PROPERTIES_CHANGED", 1, "ab")],
        [("INIT", 1, "ab"), ("CHANGING", 0, ""), ("CHANGED", 2, "ba")],
        [("INIT", 2, "ab"), ("CHANGING", 0, ""), ("CHANGED", 1, "a")],
        [("CHANGED", 1, "ab")],
    ],
)
def test_the_check_of_events_finds_what_must_not_be_reported(
    reported: list[tuple[str, int, str]], tmp_path: Path
) -> None:
    class Recorded(Instance):
        def runs(self) -> list[list[dict[str, object]]]:
            views = [
                {"revision": at, "order": [*order], "leaders": [order[0]], "local": "a"}
                if order
                else {}
                for _, at, order in reported
            ]
            return [[{"event": reported[n][0], **view} for n, view in enumerate(views)]]

    with pytest.raises(AssertionError):
        check_events([Recorded("a", "", tmp_path)])
