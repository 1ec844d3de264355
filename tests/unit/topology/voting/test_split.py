"""The window in which voting can split, and what keeps it shut."""

import itertools
from collections.abc import Iterable

import pytest

from packhorse.topology.membership import Observation
from packhorse.topology.voting.member import VotingMember
from tests.harness.topology.driven import ids, settled, step
from tests.harness.topology.voting_clusters import VotingMemoryCluster

NAMES = ("a", "b", "c")


class Watched:
    """Three members, and how many of them ever led at the same time."""

    def __init__(self) -> None:
        self.cluster = VotingMemoryCluster()
        self.members = {name: self.cluster.member(name) for name in NAMES}
        settled(self.cluster, *self.members.values())
        self.seen: dict[str, Observation] = {}
        self.most_leaders = 0

    def slow(self, ways: Iterable[tuple[str, str]], seconds: float) -> None:
        for writer, reader in ways:
            self.cluster.store.delay(
                f"{writer}#{place(writer)}", f"{reader}#{place(reader)}", seconds
            )

    def run(self, seconds: int, *awake: str) -> None:
        for _ in range(seconds):
            self.cluster.pass_time(1)
            for name in awake or NAMES:
                self.seen[name] = step(self.members[name])
                self._count()

    def all(self) -> list[VotingMember]:
        return list(self.members.values())

    def _count(self) -> None:
        now = self.cluster.clock.monotonic()
        valid = [one.view for one in self.seen.values() if one.view and now < one.valid_until]
        self.most_leaders = max(self.most_leaders, len({view.leader.id for view in valid}))


def place(name: str) -> int:
    return NAMES.index(name) + 1


BOTH_WAYS = [way for way in itertools.permutations(NAMES, 2) if "a" in way]


def test_delays_both_ways_longer_than_the_timeout_split_it_and_healing_ends_that() -> None:
    watched = Watched()
    watched.slow(BOTH_WAYS, 60)
    watched.run(50)
    assert watched.most_leaders == 2
    assert {ids(one) for one in watched.seen.values()} == {("a",), ("b", "c")}
    watched.cluster.store.heal()
    assert set(ids(settled(watched.cluster, *watched.all()))) == set(NAMES)


def test_delays_shorter_than_the_timeout_split_nothing() -> None:
    watched = Watched()
    watched.slow(BOTH_WAYS, 4)
    watched.run(100)
    assert watched.most_leaders == 1
    assert {ids(one) for one in watched.seen.values()} == {NAMES}


@pytest.mark.parametrize("paused", NAMES)
def test_a_pause_on_a_store_that_shows_all_at_once_splits_nothing(paused: str) -> None:
    watched = Watched()
    watched.run(60, *(name for name in NAMES if name != paused))
    watched.run(60)
    assert watched.most_leaders == 1
    assert ids(watched.seen["a"])[-1] == paused


def test_one_way_is_enough_to_be_voted_out_but_not_to_go_on_leading() -> None:
    watched = Watched()
    watched.slow([("a", "b"), ("a", "c")], 60)
    watched.run(59)
    assert ids(watched.seen["b"]) == ("b", "c")
    assert ids(watched.seen["a"]) == ()
