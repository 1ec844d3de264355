"""R16, R18: subscribers come and go by themselves; error queues count each package once."""

from packhorse.messaging.api import Record
from packhorse.wire.codec import encode_discovery, encode_status
from packhorse.wire.messages import DiscoveryMessage, Status, StatusMessage, SubscriberState
from packhorse.wire.record import Encoded
from packhorse_services.publisher.queues.errors import ErrorQueues
from packhorse_services.publisher.queues.subscribers import Subscribers
from tests.harness.clock import ManualClock


def record(encoded: Encoded, time_ms: int = 0, offset: int = 0) -> Record:
    return Record("topic", 0, offset, time_ms, None, encoded.headers, encoded.value)


def announcement(name: str, offset: int = 0, *, time_ms: int = 0, agent: str = "main") -> Record:
    message = DiscoveryMessage(name, (SubscriberState(agent, offset),), editable=True)
    return record(encode_discovery(message), time_ms)


def test_r16_silence_makes_stale_and_then_forgotten() -> None:
    clock = ManualClock()
    subscribers = Subscribers(clock)
    subscribers.note(announcement("a", 7), True)
    found = subscribers.get("a")
    assert found is not None
    assert found.lanes["main"].offset == 7
    clock.advance(29.9)
    assert not subscribers.is_stale(found)
    clock.advance(0.2)
    assert subscribers.is_stale(found)
    assert subscribers.following("main") == [found]
    subscribers.note(announcement("a", 8), True)
    again = subscribers.get("a")
    assert again is not None
    assert not subscribers.is_stale(again)
    clock.advance(24 * 3600 + 1)
    assert subscribers.get("a") is None
    assert subscribers.following("main") == []
    subscribers.forget()
    assert subscribers._known == {}


def test_r16_what_was_announced_before_we_came_is_as_old_as_it_is() -> None:
    clock = ManualClock()
    subscribers = Subscribers(clock)
    subscribers.note(announcement("old", time_ms=clock.wall_ms() - 40_000), False)
    subscribers.note(announcement("new", time_ms=clock.wall_ms() - 5_000), False)
    subscribers.note(announcement("skewed", time_ms=clock.wall_ms() + 60_000), False)
    stale = {one.name: subscribers.is_stale(one) for one in subscribers.following("main")}
    assert stale == {"new": False, "old": True, "skewed": False}


def test_r30_nonsense_is_left_out() -> None:
    subscribers = Subscribers(ManualClock())
    subscribers.note(record(Encoded({}, b"\xff")), True)
    subscribers.note(announcement(""), True)
    subscribers.note(announcement("x" * 201), True)
    subscribers.note(announcement("line\nbreak"), True)
    subscribers.note(announcement("good", agent="other"), True)
    assert [one.name for one in subscribers.following("other")] == ["good"]
    assert subscribers.following("main") == []


def status(offset: int, kind: Status, subscriber: str = "a", agent: str = "main") -> Record:
    message = StatusMessage(subscriber, agent, offset, kind, f"id-{offset}", 3, "why")
    return record(encode_status(message))


def test_r18_repeats_and_strangers_change_nothing() -> None:
    errors = ErrorQueues("main")
    for _ in range(3):
        for offset in (5, 1, 9):
            errors.note(status(offset, Status.REMOVED_FAILED), True)
        errors.note(status(7, Status.REMOVED), True)
        errors.note(status(3, Status.IMPORTED), True)
        errors.note(status(4, Status.REMOVED_FAILED, agent="other"), True)
        errors.note(record(Encoded({}, b"\xff")), True)
    assert errors.count("a") == 3
    assert [one.offset for one in errors.page("a", -1, 2)] == [1, 5]
    assert [one.offset for one in errors.page("a", 5, 2)] == [9]
    failure = errors.failure("a", 5)
    assert failure is not None
    assert (failure.package_id, failure.attempts, failure.reason) == ("id-5", 3, "why")
    assert errors.failure("a", 7) is None
    assert errors.was_removed("a", 7)
    assert not errors.was_removed("a", 5)
    assert errors.count("b") == 0
    assert not errors.was_removed("b", 7)
