"""Shares: nobody takes all of something, and what is given back is there for others (R33)."""

import pytest

from packhorse.runtime.limits import ServiceLimits
from packhorse.runtime.open_connections import OpenConnections, network_of
from packhorse.runtime.places import Places, RequestPlace, who
from packhorse.runtime.principal import CALLER, Principal
from packhorse.runtime.problems import Problem
from tests.unit.runtime.apps import sample_app, send_json


def test_one_has_its_share_and_all_together_have_all() -> None:
    places = Places("waits", 4, 2)
    for by in ("a", "a", "b"):
        places.take(by)
    with pytest.raises(Problem, match="429"):
        places.take("a")
    places.take("c")
    with pytest.raises(Problem, match="503"):
        places.take("d")
    places.give_back("a")
    places.take("d")


def test_the_bytes_of_a_body_are_given_back_with_the_answer() -> None:
    app = sample_app(limits=ServiceLimits(held_bytes=100))  # of which one caller has the half
    body = b'{"action":"ADD","paths":["/a"]}'
    found = [send_json(app, sent).status_code for sent in (body, body, b"{" * 40, body)]
    assert found == [202, 202, 400, 202]
    assert send_json(app, body + b" " * 50).status_code == 429


def test_a_request_counts_as_its_callers_once_that_is_known() -> None:
    places = Places("requests", 4, 2)
    first, second = (
        RequestPlace(places, "address 10.0.0.1"),
        RequestPlace(places, "address 10.0.0.1"),
    )
    first.hand_to("caller a")
    places.take("address 10.0.0.1")
    places.take("caller a")
    with pytest.raises(Problem, match="429"):
        second.hand_to("caller a")
    second.leave()
    first.leave()
    first.leave()
    places.take("caller b", 2)


def test_who_is_the_caller_or_else_the_address() -> None:
    assert who({"client": ("10.0.0.1", 1)}) == "address 10.0.0.1"
    assert who({"client": ("2001:db8::1", 1)}) == who({"client": ("2001:db8::2", 1)})
    caller = Principal("a", frozenset())
    assert who({"client": ("10.0.0.1", 1), CALLER: caller}) == "caller a"


class _Connection:
    def __init__(self) -> None:
        self.open = True

    def close_silent(self) -> None:
        self.open = False


def test_the_oldest_silent_connection_makes_room_and_probes_have_places() -> None:
    connections, held = OpenConnections(9), [_Connection() for _ in range(6)]
    assert all(connections.opened(one, "10.0.0.1") for one in held)
    connections.speaking(held[0])
    newest = _Connection()
    assert connections.opened(newest, "10.0.0.1")
    assert [one.open for one in held] == [True, False, True, True, True, True]
    others = [_Connection() for _ in range(4)]
    assert all(connections.opened(one, "10.0.0.2") for one in others)
    assert all(one.open for one in others), "who has the most silent ones makes room"
    for one in (*held[2:], newest, *others):
        if one.open:
            assert not connections.speaking(one)
    surplus = _Connection()
    assert connections.opened(surplus, "10.0.0.3")
    assert connections.speaking(surplus), "nothing is silent, so it has to be a probe"


def test_one_client_has_a_network_of_ipv6() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db9::1")
    assert network_of("10.0.0.1") != network_of("10.0.0.2")


def test_clients_by_ipv4_are_distinguished_where_the_socket_is_for_both() -> None:
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") != network_of("::ffff:10.0.0.2")
