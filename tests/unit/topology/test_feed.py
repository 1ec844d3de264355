"""The newest events, and where a client goes on in them."""

import json
from collections.abc import Sequence

import pytest

from packhorse.clock import SystemClock
from packhorse.runtime.feed import StreamsEnded, TooManyStreams
from packhorse.runtime.problems import Problem
from packhorse.topology.events import EventKind, TopologyEvent
from packhorse.topology.view import TopologyView
from packhorse_services.topology.http.event_feed import (
    Feed,
    NumberedEvent,
    StreamPosition,
    TopologyFollower,
    read_position,
)
from tests.harness.topology.scripted import cluster


def view(*ids: str, **properties: dict[str, str]) -> TopologyView:
    return TopologyView(cluster(*ids, local=ids[0], properties=properties))


A, B = view("a"), view("a", "b")
INIT = TopologyEvent(EventKind.INIT, None, A)
CHANGING = TopologyEvent(EventKind.CHANGING, A, None)
CHANGED = TopologyEvent(EventKind.CHANGED, A, B)


def feed(*events: TopologyEvent, keep: int = 100, size: int = 1 << 20) -> Feed:
    made = Feed("a", SystemClock(), max_streams=2, events=keep, size=size)
    for event in events:
        made.hear(event)
    return made


def names(reported: Sequence[NumberedEvent]) -> list[str]:
    return [one.name for one in reported]


def test_a_newcomer_gets_init_with_the_view_that_holds() -> None:
    [reported] = TopologyFollower(feed(INIT, CHANGING, CHANGED), None).news()
    assert (reported.name, reported.number) == ("INIT", 3)
    clusters = json.loads(reported.data)["topology"]["clusters"]
    assert [one["id"] for one in clusters[0]["instances"]] == ["a", "b"]


def test_a_newcomer_waits_while_the_topology_is_unknown_or_changing() -> None:
    made = feed()
    follower = TopologyFollower(made, None)
    assert follower.news() == []
    for event in (INIT, CHANGING):
        made.hear(event)
    assert follower.news() == []
    made.hear(CHANGED)
    assert names(follower.news()) == ["INIT"]
    assert follower.news() == []


def test_who_follows_hears_each_event_once_and_in_order() -> None:
    made = feed(INIT)
    follower = TopologyFollower(made, None)
    assert names(follower.news()) == ["INIT"]
    made.hear(CHANGING)
    assert names(follower.news()) == ["CHANGING"]
    made.hear(CHANGED)
    made.hear(TopologyEvent(EventKind.PROPERTIES_CHANGED, B, view("a", "b", b={"x": "1"})))
    reported = follower.news()
    assert names(reported) == ["CHANGED", "PROPERTIES_CHANGED"]
    changed, properties = (json.loads(one.data) for one in reported)
    assert (changed["added"], changed["removed"], properties["changed"]) == (["b"], [], ["b"])


def test_who_comes_back_gets_what_it_has_missed() -> None:
    made = feed(INIT, CHANGING, CHANGED)
    assert names(TopologyFollower(made, StreamPosition(made.run, 1)).news()) == [
        "CHANGING",
        "CHANGED",
    ]
    assert names(TopologyFollower(made, StreamPosition(made.run, 2)).news()) == ["CHANGED"]
    assert TopologyFollower(made, StreamPosition(made.run, 3)).news() == []


@pytest.mark.parametrize(
    ("run", "number", "reason"),
    [("", 1, "FORGOTTEN"), ("", 99, "FORGOTTEN"), ("00000000", 3, "ANOTHER_PROCESS")],
)
def test_where_what_was_missed_is_forgotten_a_gap_and_init_are_sent(
    run: str, number: int, reason: str
) -> None:
    made = feed(INIT, CHANGING, CHANGED, CHANGING, CHANGED, keep=2)
    gap, init = TopologyFollower(made, StreamPosition(run or made.run, number)).news()
    assert (gap.name, json.loads(gap.data), gap.number) == ("gap", {"reason": reason}, 0)
    assert (init.name, init.number) == ("INIT", 5)


def test_a_gap_is_reported_at_once_though_init_has_to_wait() -> None:
    made = feed(INIT, CHANGING)
    follower = TopologyFollower(made, StreamPosition("00000000", 1))
    assert names(follower.news()) == ["gap"]
    assert follower.news() == []
    made.hear(CHANGED)
    assert names(follower.news()) == ["INIT"]


def test_a_client_that_is_too_slow_falls_out_and_costs_nothing() -> None:
    made = feed(INIT)
    follower = TopologyFollower(made, None)
    follower.news()
    large = view("a", a={"x": "y" * 4000})
    for _ in range(50):
        made.hear(TopologyEvent(EventKind.PROPERTIES_CHANGED, A, large))
    small = feed(INIT, *[TopologyEvent(EventKind.PROPERTIES_CHANGED, A, large)] * 50, size=10_000)
    assert small.after(1) is None
    kept = small.after(small.first().number - 1)  # type: ignore[union-attr]
    assert kept is not None
    assert len(kept) == 1
    assert len(follower.news()) == 50


def test_the_history_is_bounded_and_the_newest_comes_first() -> None:
    many = view("a", *(f"i{number}" for number in range(500)))
    init, *_, newest = reversed(feed(INIT, CHANGING, CHANGED).history())
    assert (init.kind, init.added, len(init.leaders)) == ("INIT", ["a"], 1)
    assert (newest.kind, newest.added, newest.removed) == ("CHANGED", ["b"], [])
    changes = feed(*[CHANGING] * 150, TopologyEvent(EventKind.CHANGED, A, many)).history()
    assert [len(change.added) for change in changes] == [200] + [0] * 99
    assert {change.kind for change in changes[1:]} == {"CHANGING"}


def test_places_are_bounded_and_none_is_given_at_the_end() -> None:
    made = feed()
    with made.place({}), made.place({}), pytest.raises(TooManyStreams), made.place({}):
        pass
    with made.place({}):
        made.end_streams()
    with pytest.raises(StreamsEnded), made.place({}):
        pass


@pytest.mark.parametrize("text", ["", "1", "zzzzzzzz-1", "00000000-", "00000000-x", "0000000-1"])
def test_what_is_no_id_of_ours_is_refused(text: str) -> None:
    with pytest.raises(Problem) as refused:
        read_position(text)
    assert refused.value.status_code == 422
