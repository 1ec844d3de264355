"""Which snapshots a fold may go on from, and what upkeep may therefore delete."""

import pytest

from packhorse.bookkeeping.positions import LoadedSnapshot
from packhorse.snapshots.snapshot import ContentSnapshot, left_out, new_id
from packhorse.snapshots.store import decode, encode
from packhorse_services.pipeline.history.bases import (
    AddedSubscription,
    began,
    known_agents,
    leaves_out,
    serves,
    suits_added,
)
from packhorse_services.pipeline.upkeep.expiry import held


def snapshot(
    offset: int, *agents: str, subscriber: str = "", absent: tuple[int, ...] = ()
) -> ContentSnapshot:
    return ContentSnapshot(
        *(new_id(), 1, "j", offset, "", agents, subscriber, 0, (), ()),
        left_out=left_out(absent),
    )


def joined(loaded: ContentSnapshot) -> LoadedSnapshot:
    return LoadedSnapshot(
        *(loaded.id, loaded.offset, loaded.publisher_agents, loaded.subscriber, loaded.left_out)
    )


def test_a_quiet_agent_whose_packages_expired_is_still_known() -> None:
    assert known_agents(["a"], [snapshot(5, "a", "b")], "j") == {"a", "b"}
    assert known_agents(["a", ""], [snapshot(5, "a", "b")], "another") == {"a"}


@pytest.mark.parametrize(
    ("agents", "first", "others", "good"),
    [
        ({"a", "b"}, {"a": 1}, [], True),
        ({"a", "b", "c"}, {"a": 1, "c": 6}, [], True),  # it began later
        ({"a", "b", "c"}, {"a": 1}, [], True),  # it never said anything
        ({"a", "b", "c"}, {"a": 1, "c": 5}, [], False),
        ({"a", "b", "c"}, {"a": 1, "c": 6}, [snapshot(3, "c")], False),  # what it said has expired
        ({"a"}, {"a": 1}, [], False),  # what b wrote can't be taken out
    ],
)
def test_a_base_serves_those_it_is_of_and_those_who_began_behind_it(
    agents: set[str], first: dict[str, int], others: list[ContentSnapshot], *, good: bool
) -> None:
    base = snapshot(5, "a", "b")
    assert serves(base, agents, began(first, [base, *others], "j")) == good


def test_a_base_lacks_what_must_be_absent_and_nothing_else() -> None:
    plain, lacking = snapshot(5, "a"), snapshot(5, "a", subscriber="s", absent=(4, 2))
    assert leaves_out(plain, "", ())
    assert leaves_out(plain, "s", (6,))
    assert not leaves_out(plain, "s", (5,))
    assert leaves_out(lacking, "s", (2, 4, 7))
    assert not leaves_out(lacking, "s", (2, 3, 4))
    assert not leaves_out(lacking, "other", (2, 4))
    assert not leaves_out(snapshot(5, "a", absent=(4,)), "", ())


def test_who_began_with_a_snapshot_goes_on_from_what_lacks_the_same() -> None:
    golden = snapshot(5, "a", subscriber="golden", absent=(2,))
    start = joined(golden)

    def goes_on(offset: int, *offsets: int, whose: str = "golden", absent: int = 2) -> bool:
        base = snapshot(offset, "a", subscriber=whose, absent=(absent,))
        return leaves_out(base, "s", offsets, start)

    assert leaves_out(golden, "s", (4,), start)
    assert goes_on(9, 4, 10)
    assert not goes_on(9, 8)
    assert not goes_on(9, absent=3)
    assert not goes_on(4)
    assert not any(goes_on(9, whose=whose) for whose in ("", "s"))  # they lack what names golden


def test_a_manifest_says_what_was_left_out_and_older_ones_are_read() -> None:
    made = snapshot(5, "a", absent=(4,))
    assert decode(encode(made)) == made
    before = encode(snapshot(5, "a")).replace(b',"left_out":""', b"")
    assert b"left_out" not in before
    assert decode(before).left_out == ""


def test_upkeep_lets_go_only_what_every_set_of_agents_finds_in_a_snapshot() -> None:
    first = {"a": 1, "b": 2}
    made = [snapshot(9, "a"), snapshot(5, "a", "b")]
    assert held("j", first, made, []) == {"a": 5, "b": 5}
    assert held("j", first, made, [frozenset("a")]) == {"a": 5, "b": 5}
    assert held("j", first, made, [frozenset("b")]) == {"a": 5, "b": -1}
    more = [*made, snapshot(7, "a", "b", absent=(3,)), snapshot(8, "a", "b", subscriber="s")]
    assert held("j", first, more, []) == {"a": 5, "b": 5}
    assert held("j", {**first, "c": 8}, made, []) == {"a": 5, "b": 5, "c": 5}
    assert held("j", {"a": 6}, made, []) == {"a": 5, "b": 5}


@pytest.mark.parametrize(
    ("agents", "subscription", "first", "unknown", "good"),
    [
        (("a",), AddedSubscription(2, 9), {"b": 0}, -1, True),
        (("a",), AddedSubscription(2, 9), {"b": 0}, 2, True),
        (
            ("a",),
            AddedSubscription(2, 9),
            {"b": 0},
            3,
            False,
        ),  # some of what it imported has expired
        (
            ("a",),
            AddedSubscription(2, 9),
            {"b": 6},
            3,
            True,
        ),  # there was nothing of it before the base
        (("a", "b"), AddedSubscription(2, 9), {"b": 3}, 4, True),  # it has all of b that is known
        (
            ("a", "b"),
            AddedSubscription(3, 9),
            {"b": 3},
            -1,
            False,
        ),  # the base has some that it has not
        (("a", "b"), AddedSubscription(2, 4), {"b": 3}, -1, False),  # it is not there yet
        (("a", "b"), AddedSubscription(2, 9, frozenset({5})), {"b": 3}, -1, False),
        (("a", "b"), AddedSubscription(2, 9, frozenset({6})), {"b": 3}, -1, True),
    ],
)
def test_onto_which_base_a_subscription_may_be_folded_that_was_added_later(
    agents: tuple[str, ...],
    subscription: AddedSubscription,
    first: dict[str, int],
    unknown: int,
    *,
    good: bool,
) -> None:
    base = snapshot(5, *agents)
    suits = suits_added(base, {"b": subscription}, first, unknown=unknown, start=joined(base))
    assert suits == good
