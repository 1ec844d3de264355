"""Who may connect, by address."""

import pytest

from packhorse_services.topology.connectors.allow_list import AllowList
from tests.harness.clock import ManualClock


class FakeNames:
    """A name service that counts its questions. The claim of 10.0.0.66 is not confirmed."""

    def __init__(self) -> None:
        self.requested = 0
        self.addresses = {
            "peer.example": frozenset({"10.0.0.7", "2001:db8::7"}),
            "a.peers.example": frozenset({"10.0.0.8"}),
            "a.bee.de": frozenset({"10.0.0.9"}),
        }
        self.claims = {"10.0.0.8": "A.peers.example", "10.0.0.9": "a.bee.de"}
        self.claims |= {"10.0.0.66": "b.peers.example"}

    def addresses_of(self, name: str) -> frozenset[str]:
        self.requested += 1
        return self.addresses.get(name, frozenset())

    def name_of(self, address: str) -> str:
        self.requested += 1
        return self.claims.get(address, "")


@pytest.mark.parametrize(
    ("entry", "peer", "allowed"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.2.3", "::ffff:10.1.2.3", True),
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.9/24", "10.0.0.1", True),
        ("10.0.0.0 255.255.0.0", "10.0.255.1", True),
        ("10.0.0.0 255.255.0.0", "10.1.0.1", False),
        ("2001:db8::/32", "2001:db8::1", True),
        ("2001:db8::/32", "2001:db9::1", False),
        ("10.1.*", "10.1.200.3", True),
        ("10.1.*", "10.11.2.3", False),
        ("10.1.2.?", "10.1.2.3", True),
        ("10.1.2.?", "10.1.2.33", False),
        ("*", "203.0.113.9", True),
        ("peer.example", "10.0.0.7", True),
        ("PEER.example", "2001:DB8::7", True),
        ("peer.example", "10.0.0.8", False),
        ("unknown.example", "10.0.0.7", False),
        ("*.peers.example", "10.0.0.8", True),
        ("?.peers.EXAMPLE", "10.0.0.8", True),
        ("*.peers.example", "10.0.0.66", False),
        ("*.peers.example", "10.0.0.7", False),
        ("*.bee.de", "10.0.0.9", True),
        ("*.bee.de", "10.0.0.8", False),
        ("2001:db8::*", "2001:db8::de", True),
        ("*de", "2001:db8::de", False),
        ("10.1.2.3", "", False),
        ("10.1.2.3", "10.1.2.3.example", False),
    ],
)
def test_entries(entry: str, peer: str, allowed: bool) -> None:
    assert AllowList([entry], FakeNames(), ManualClock()).allows(peer) is allowed


def test_an_empty_list_allows_nobody() -> None:
    assert not AllowList([], FakeNames(), ManualClock()).allows("127.0.0.1")


def test_one_entry_of_several_is_enough() -> None:
    allowed = AllowList(["peer.example", "192.0.2.0/24"], FakeNames(), ManualClock())
    assert allowed.allows("192.0.2.1")
    assert allowed.allows("10.0.0.7")


def test_who_is_listed_by_address_waits_for_no_name_service() -> None:
    names = FakeNames()
    allowed = AllowList(["peer.example", "*.peers.example", "192.0.2.0/24"], names, ManualClock())
    assert allowed.has_address("192.0.2.1")
    assert not allowed.has_address("10.0.0.7")
    assert names.requested == 0


def test_answers_are_remembered_for_a_minute() -> None:
    names, clock = FakeNames(), ManualClock()
    allowed = AllowList(["peer.example"], names, clock)
    assert allowed.allows("10.0.0.7")
    names.addresses = {}
    assert allowed.allows("10.0.0.7")
    assert names.requested == 1
    clock.advance(61)
    assert not allowed.allows("10.0.0.7")


def test_localhost_is_known_to_the_machine() -> None:
    assert AllowList(["localhost"]).allows("127.0.0.1")
