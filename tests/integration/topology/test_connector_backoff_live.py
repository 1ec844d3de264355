"""Back-off between running clusters: it grows in calm, both sides know, and a change ends it."""

import itertools
from collections.abc import Callable

from packhorse.topology.announcement_store import Peer
from packhorse_services.topology.connectors.states import ConnectorPhase
from tests.harness.postgres import Databases
from tests.harness.topology.clusters import Cluster, cluster, running, until_known
from tests.harness.waiting import eventually

_TIMEOUT_S = 3.0  # a busy machine may do nothing for a second or two
_QUICK = {"interval_s": 0.1, "timeout_s": _TIMEOUT_S, "backoff_factor": 2.5}
_LONGEST_S = 0.25
_GROWN_S = 90.0  # it takes the time-out times the factor


def _interval(one: Cluster) -> float:
    [state] = one.outgoing()
    return state.interval_s


def _change_until(one: Cluster, name: str, is_back: Callable[[], bool]) -> None:
    """Change it again and again: the interval grows anew while nobody looks."""
    values = itertools.count()

    def changed() -> bool:
        one.topology.change(cluster(name, f"{name}-1", seen=str(next(values))))
        return is_back()

    eventually(changed, what="it is back")


def _heard_for_a_timeout(one: Cluster) -> list[Peer]:
    heard: dict[float, Peer] = {}

    def for_a_timeout() -> bool:
        peers = one.assembled.connectors._knowledge.peers()
        heard.update({kept.received_at: kept for kept in peers})
        return bool(heard) and max(heard) - min(heard) > _TIMEOUT_S

    eventually(for_a_timeout, timeout=_GROWN_S, what="heard for longer than the time-out")
    return list(heard.values())


def test_calm_makes_it_grow_at_both_and_a_change_on_either_side_takes_it_back(
    databases: Databases,
) -> None:
    one = Cluster("one", databases.new(), **_QUICK)
    two = Cluster("two", databases.new(), urls=(one.url,), **_QUICK)

    def has_grown() -> bool:
        intervals = [_interval(two), *(known.interval_s for known in one.all_states())]
        return intervals == [_LONGEST_S, _LONGEST_S]

    with running(one, two):
        until_known(two, ["one"])
        eventually(has_grown, timeout=_GROWN_S, interval=0.3, what="it has grown")
        heard = _heard_for_a_timeout(one)
        for kept in heard:  # each holds for what the connector adds to its pause
            longer = kept.backoff_interval_s - _QUICK["interval_s"]
            assert abs(kept.expires_at - kept.received_at - (_TIMEOUT_S + longer)) < 0.05
        assert _LONGEST_S in {kept.backoff_interval_s for kept in heard}
        until_known(one, ["two"])
        for changed, name in ((two, "two"), (one, "one")):
            eventually(has_grown, timeout=_GROWN_S, interval=0.3, what="it has grown")
            _change_until(changed, name, lambda: _interval(two) < _LONGEST_S)
            eventually(lambda: two.states() == [ConnectorPhase.CONNECTED])


def test_a_restarted_connector_goes_on(databases: Databases) -> None:
    one = Cluster("one", databases.new())
    shared = databases.new()
    first = Cluster("two", shared, urls=(one.url,))
    with running(one):
        with running(first):
            until_known(one, ["two"])
        until_known(one, [])
        again = Cluster("two", shared, urls=(one.url,))
        with running(again):
            until_known(one, ["two"])
            until_known(again, ["one"])


def test_both_may_connect_to_each_other(databases: Databases) -> None:
    one = Cluster("one", databases.new())
    two = Cluster("two", databases.new(), urls=(one.url,))
    with running(one, two):
        until_known(two, ["one"])
        back = Cluster(
            "one",
            one.database_url,
            instance="one-2",
            own=cluster("one", "one-1", "one-2"),
            urls=(two.url,),
        )
        with running(back):
            eventually(lambda: back.states() == [ConnectorPhase.CONNECTED])
            until_known(one, ["two"])
            until_known(two, ["one"])
        until_known(one, ["two"])
        until_known(two, ["one"])


def test_a_database_that_is_away_ends_no_connector(databases: Databases) -> None:
    one = Cluster("one", databases.new())
    away = databases.server.url("no_such_database")
    two = Cluster("two", away, urls=(one.url,))
    with running(one):
        two.start()
        eventually(lambda: two.assembled.connectors._connectors[0].outcome().reason != "")
        assert (
            two.assembled.connectors._connectors[0].outcome().reason == "the own database is away"
        )
        assert two.assembled.connectors.failure() is None
        two.stop()
