"""The parts of live events: positions, rings, filters, what records become."""

import json

import pytest
from fastapi.sse import ServerSentEvent
from hypothesis import given
from hypothesis import strategies as st

from packhorse.messaging.api import Outgoing
from packhorse.runtime.problems import Problem
from packhorse.wire.package_codec import AGENT_HEADER, PACKAGE_ID_HEADER
from packhorse_services.publisher.live import recent_events
from packhorse_services.publisher.live.event_id import (
    LOGS,
    LogCursor,
    mark_of,
    read_position,
    write_position,
)
from packhorse_services.publisher.live.events import EventType, SubscriberEvent
from packhorse_services.publisher.live.stream_reader import StreamFilter, StreamReader
from packhorse_services.publisher.live.subscriber_states import StatesSeen
from tests.harness.live import EVERYTHING, NAMES, NEVER, Logs, Replica, message, read_round

offsets = st.integers(0, 2**63 - 1)
cursors = st.builds(LogCursor, offsets, st.sampled_from(["", "0a1b2c3d"]))


@given(st.fixed_dictionaries(dict.fromkeys(LOGS, cursors)))
def test_a_position_survives_the_way_to_the_client_and_back(
    position: dict[EventType, LogCursor],
) -> None:
    assert read_position(write_position(position)) == position


@pytest.mark.parametrize(
    "text",
    [
        *("", "p1", "p1-s2", "p1-s2-e3-", "s1-p2-e3", "p1-s2-e-3", "p1-s2-e3.xyz", " p1-s2-e3"),
        *("p1-s2-e9223372036854775808", "p１-s2-e3", "p1-s2-e3\n", "p" + "1" * 5000),
    ],
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(Problem) as refused:
        read_position(text)
    assert refused.value.status_code == 422


def test_a_mark_distinguishes_topics_and_partitions() -> None:
    assert len({mark_of("one", 0), mark_of("one", 1), mark_of("two", 0)}) == 3


def everything_reported(replica: Replica, reader: StreamReader) -> list[ServerSentEvent]:
    reported: list[ServerSentEvent] = []
    before = ""
    while before != reader.id:
        before = reader.id
        reported += read_round(replica, reader)
    return reported


def from_the_beginning(
    replica: Replica, wanted: StreamFilter = EVERYTHING
) -> list[ServerSentEvent]:
    return everything_reported(
        replica, StreamReader(replica.logs, wanted, read_position("p0-s0-e0"))
    )


def test_only_what_is_wanted_is_reported_and_the_rest_counts_as_seen() -> None:
    logs = Logs()
    for source in LOGS:
        for subscriber in ("golden", "other"):
            logs.append(source, subscriber=subscriber)
        logs.append(source, "another-agent")
    replica = Replica(logs)
    names = [reported.event for reported in from_the_beginning(replica)]
    assert names == ["package"] * 2 + ["status"] * 2 + ["distributed"] * 2
    only = StreamFilter(frozenset({EventType.STATUS}))
    assert [reported.event for reported in from_the_beginning(replica, only)] == ["status"] * 2
    about = from_the_beginning(replica, StreamFilter(EVERYTHING.types, "golden"))
    assert [reported.event for reported in about] == ["status", "distributed"]
    assert json.loads(str(about[0].raw_data))["subscriber"] == "golden"
    end = StreamReader(replica.logs, EVERYTHING, read_position(str(about[-1].id)))
    assert end.cursor(EventType.PACKAGE).offset == 3


def test_r2_a_position_beyond_the_end_is_reported_and_the_log_begins_again() -> None:
    logs = Logs()
    for _ in range(3):
        logs.append(EventType.STATUS)
    replica = Replica(logs)
    position = read_position("p0-s99-e0")
    reported = everything_reported(replica, StreamReader(replica.logs, EVERYTHING, position))
    assert [one.event for one in reported] == ["gap", "status", "status", "status"]
    assert json.loads(str(reported[0].raw_data)) == {
        "source": "status",
        "from_offset": 99,
        "to_offset": 0,
        "reason": "BEYOND_END",
    }
    assert read_position(str(reported[0].id))[EventType.STATUS].offset == 0


def test_r14_a_package_that_cant_be_read_is_reported_and_what_is_no_message_is_not() -> None:
    logs = Logs()
    for source in LOGS:
        encoded = message(source, "x")
        logs.journal.append(NAMES[source], Outgoing(b"\xff\xff", {})).result()
        logs.journal.append(NAMES[source], Outgoing(b"\xff\xff", encoded.headers)).result()
    broken = {AGENT_HEADER: b"main", PACKAGE_ID_HEADER: b"id\xff", "entry": b"\xff\xff"}
    logs.journal.append(NAMES[EventType.PACKAGE], Outgoing(b"", broken)).result()
    reported = from_the_beginning(Replica(logs))
    assert [one.event for one in reported] == ["package", "package"]
    shown = json.loads(str(reported[1].raw_data))
    assert (shown["package_id"], shown["action"], shown["offset"]) == ("id\ufffd", None, 2)


def test_r30_a_ring_is_bounded_in_bytes_and_who_falls_out_reads_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent_events, "_BYTES", 3_000)
    logs = Logs()
    replica = Replica(logs, ring_events=1_000)
    ring = replica.logs[EventType.PACKAGE].recent
    begin = ring.end()
    for _ in range(100):
        logs.append(EventType.PACKAGE)
        replica.tail(EventType.PACKAGE, 10)
    assert 0 < len(ring._events) < 15
    assert ring.read(begin, 10) is None
    found = replica.logs[EventType.PACKAGE].read(begin, NEVER)
    assert len(found.events) == 100  # type: ignore[union-attr]


def state(name: str, state: str) -> SubscriberEvent:
    return SubscriberEvent(subscriber=name, state=state, offset=1, attempts=0, last_error="")


def test_states_are_reported_at_first_and_when_they_change() -> None:
    seen = StatesSeen(None)
    both = {"a": state("a", "IDLE"), "b": state("b", "RUNNING")}
    assert len(seen.news(both)) == 2
    assert seen.news(both) == []
    moved = both["b"].model_copy(update={"offset": 2})
    assert seen.news({**both, "b": moved}) == []
    assert [(one.subscriber, one.state) for one in seen.news({"b": state("b", "STALE")})] == [
        ("b", "STALE"),
        ("a", "FORGOTTEN"),
    ]
    assert [one.subscriber for one in StatesSeen("a").news(both)] == ["a"]
