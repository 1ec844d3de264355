"""R16: subscribers come and go by themselves."""

from packhorse.messaging.api import Record
from packhorse.wire.codec import encode_discovery
from packhorse.wire.messages import DiscoveryMessage, SubscriberState
from packhorse.wire.record import Encoded
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


def known(name: str, offset: int) -> DiscoveryMessage:
    return DiscoveryMessage(name, (SubscriberState("main", offset),))


def test_r16_what_is_known_from_before_is_as_old_as_it_is_and_never_hides_news() -> None:
    clock = ManualClock()
    subscribers = Subscribers(clock)
    now_ms = clock.wall_ms()
    subscribers.note(announcement("heard", 5, time_ms=now_ms), True)
    subscribers.seed(known("heard", 3), now_ms - 7_200_000, 7_200_000)
    subscribers.seed(known("away", 3), now_ms - 7_200_000, 7_200_000)
    subscribers.note(announcement("away", 2, time_ms=now_ms - 8_000_000), False)
    offsets = {one.name: one.lanes["main"].offset for one in subscribers.following("main")}
    assert offsets == {"away": 3, "heard": 5}
    stale = {one.name: subscribers.is_stale(one) for one in subscribers.following("main")}
    assert stale == {"away": True, "heard": False}
    clock.advance(22 * 3600)
    assert [one.name for one in subscribers.following("main")] == ["heard"]
    subscribers.note(announcement("away", 1, time_ms=0), True)
    again = subscribers.get("away")
    assert again is not None, "a fresh announcement counts, whatever its clock says"
    assert again.lanes["main"].offset == 1
