"""R16: subscribers come and go by themselves."""

import threading
from collections.abc import Callable
from dataclasses import replace

from packhorse.messaging.api import Record
from packhorse.runtime.metrics import (
    PUBLISHER_QUEUE_ENTRIES,
    PUBLISHER_QUEUE_OLDEST_SECONDS,
    PUBLISHER_SUBSCRIBER_SILENT_SECONDS,
    PUBLISHER_SUBSCRIBERS,
)
from packhorse.wire.codec import encode_discovery
from packhorse.wire.messages import DiscoveryMessage, SubscriberState
from packhorse.wire.record import Encoded
from packhorse_services.publisher.queues.queue_measures import QueueFigures, QueueMeasures
from packhorse_services.publisher.queues.subscribers import Subscribers
from tests.harness.clock import ManualClock


def record(encoded: Encoded, time_ms: int = 0, offset: int = 0) -> Record:
    return Record("topic", 0, offset, time_ms, None, encoded.headers, encoded.value)


def announcement(name: str, offset: int = 0, *, time_ms: int = 0, agent: str = "main") -> Record:
    message = DiscoveryMessage(name, (SubscriberState(agent, offset),), editable=True)
    return record(encode_discovery(message), time_ms)


def test_r16_silence_makes_stale_and_then_forgotten() -> None:
    clock = ManualClock()
    subscribers = Subscribers(clock, "main")
    subscribers.note(announcement("a", 7), True)
    found = subscribers.get("a")
    assert found is not None
    assert found.subscription.offset == 7
    clock.advance(29.9)
    assert not subscribers.is_stale(found)
    clock.advance(0.2)
    assert subscribers.is_stale(found)
    assert subscribers.following() == [found]
    subscribers.note(announcement("a", 8), True)
    again = subscribers.get("a")
    assert again is not None
    assert not subscribers.is_stale(again)
    clock.advance(24 * 3600 + 1)
    assert subscribers.get("a") is None
    assert subscribers.following() == []
    subscribers.forget()
    assert subscribers._known == {}


def test_r16_what_was_announced_before_we_came_is_as_old_as_it_is() -> None:
    clock = ManualClock()
    subscribers = Subscribers(clock, "main")
    subscribers.note(announcement("old", time_ms=clock.wall_ms() - 40_000), False)
    subscribers.note(announcement("new", time_ms=clock.wall_ms() - 5_000), False)
    subscribers.note(announcement("skewed", time_ms=clock.wall_ms() + 60_000), False)
    stale = {one.name: subscribers.is_stale(one) for one in subscribers.following()}
    assert stale == {"new": False, "old": True, "skewed": False}
    clock.advance(31)
    assert all(subscribers.is_stale(one) for one in subscribers.following())


def test_r16_of_what_was_announced_before_we_came_the_newest_counts() -> None:
    clock = ManualClock()
    subscribers = Subscribers(clock, "main")
    for offset, age_ms in enumerate((9_000, 5_000, 5_000, 7_000)):
        record = announcement("a", offset, time_ms=clock.wall_ms() - age_ms)
        subscribers.note(record, False)
    assert [one.subscription.offset for one in subscribers.following()] == [2]


def test_r30_nonsense_is_left_out() -> None:
    subscribers = Subscribers(ManualClock(), "main")
    subscribers.note(record(Encoded({}, b"\xff")), True)
    subscribers.note(announcement(""), True)
    subscribers.note(announcement("x" * 201), True)
    subscribers.note(announcement("line\nbreak"), True)
    subscribers.note(announcement("good", agent="other"), True)
    assert subscribers.following() == []
    subscribers.note(announcement("good"), True)
    assert [one.name for one in subscribers.following()] == ["good"]


def test_r30_of_an_announcement_is_kept_what_a_page_can_show() -> None:
    subscribers = Subscribers(ManualClock(), "main")
    own = SubscriberState("main", 7, last_error="e" * 900_000, journal_id="j" * 900_000)
    message = DiscoveryMessage(
        "big",
        (SubscriberState("other", 3, last_error="e" * 900_000), own),
        endpoint="http://" + "e" * 900_000,
        subscriber_instance="i" * 900_000,
    )
    subscribers.note(record(encode_discovery(message)), True)
    subscribers.seed(replace(message, subscriber="seeded"), 0, 0)
    for found in subscribers.following():
        assert len(found.message.states) == 1, (
            "what others' subscriptions do is nobody's question here"
        )
        subscription = found.subscription
        assert (
            subscription.offset,
            len(subscription.last_error),
            len(subscription.journal_id),
        ) == (7, 2_000, 200)
        assert len(found.message.endpoint) == 500
        assert len(found.message.subscriber_instance) == 200
    assert [one.name for one in subscribers.following()] == ["big", "seeded"]


def test_r16_who_follows_us_no_more_is_no_follower() -> None:
    subscribers = Subscribers(ManualClock(), "main")
    subscribers.note(announcement("a"), True)
    subscribers.note(announcement("a", agent="other"), True)
    assert subscribers.following() == subscribers.live() == []


def known(name: str, offset: int) -> DiscoveryMessage:
    return DiscoveryMessage(name, (SubscriberState("main", offset),))


def test_r16_what_is_known_from_before_is_as_old_as_it_is_and_never_hides_news() -> None:
    clock = ManualClock()
    subscribers = Subscribers(clock, "main")
    now_ms = clock.wall_ms()
    subscribers.note(announcement("heard", 5, time_ms=now_ms), True)
    subscribers.seed(known("heard", 3), now_ms - 7_200_000, 7_200_000)
    subscribers.seed(known("away", 3), now_ms - 7_200_000, 7_200_000)
    subscribers.note(announcement("away", 2, time_ms=now_ms - 8_000_000), False)
    offsets = {one.name: one.subscription.offset for one in subscribers.following()}
    assert offsets == {"away": 3, "heard": 5}
    stale = {one.name: subscribers.is_stale(one) for one in subscribers.following()}
    assert stale == {"away": True, "heard": False}
    clock.advance(22 * 3600)
    assert [one.name for one in subscribers.following()] == ["heard"]
    subscribers.note(announcement("away", 1, time_ms=0), True)
    again = subscribers.get("away")
    assert again is not None, "a fresh announcement counts, whatever its clock says"
    assert again.subscription.offset == 1


def test_ten_thousand_names_leave_nothing_behind() -> None:
    clock = ManualClock()
    subscribers = Subscribers(clock, "main")
    for number in range(10_000):
        subscribers.note(announcement(f"s{number}"), True)
    subscribers.note(announcement("one too many"), True)
    assert subscribers.get("one too many") is None
    subscribers.note(announcement("s0", 5), True)
    known = subscribers.get("s0")
    assert known is not None
    assert known.subscription.offset == 5, "it has its place already"
    clock.advance(31)
    subscribers.note(announcement("s9999"), True)
    subscribers.note(announcement("takes the place of a silent one"), True)
    assert subscribers.get("takes the place of a silent one") is not None
    assert len(subscribers._known) == 10_000
    assert {one.name for one in subscribers.live()} == {
        "s9999",
        "takes the place of a silent one",
    }
    clock.advance(24 * 3600)
    subscribers.forget()
    assert subscribers._known == {}


def series() -> dict[str, float]:
    [metric] = PUBLISHER_QUEUE_ENTRIES.collect()
    return {sample.labels["subscriber"]: sample.value for sample in metric.samples}


def test_the_metrics_of_a_forgotten_subscriber_go_too() -> None:
    metrics = (
        *(PUBLISHER_QUEUE_ENTRIES, PUBLISHER_QUEUE_OLDEST_SECONDS),
        PUBLISHER_SUBSCRIBER_SILENT_SECONDS,
    )
    for metric in metrics:
        metric.clear()  # other tests of this process have shown theirs
    measures = QueueMeasures("main")
    measures.show([QueueFigures(3, 1.0, 7.0, "a", "true"), QueueFigures(5, 2.0, 8.0, "b", "false")])
    assert series() == {"a": 3, "b": 5}
    for metric in metrics:
        [family] = metric.collect()
        assert {sample.labels["agent"] for sample in family.samples} == {"main"}
    measures.show([QueueFigures(4, 1.0, 9.0, "a", "false")])
    assert series() == {"a": 4}
    measures.show(QueueFigures(number, 0.0, 0.0, f"s{number}", "true") for number in range(5_000))
    assert (len(series()), min(series().values())) == (1_000, 4_000)
    measures.show([])
    assert series() == {}
    for metric in metrics:
        [family] = metric.collect()
        assert family.samples == []


def test_how_many_are_known_is_shown() -> None:
    def shown() -> float:
        [family] = PUBLISHER_SUBSCRIBERS.collect()
        return family.samples[0].value

    clock = ManualClock()
    subscribers = Subscribers(clock, "main")
    for name in ("a", "b"):
        subscribers.note(announcement(name), True)
    assert shown() == 2
    subscribers.leave_out({"a": 0, "unknown": 0})
    assert shown() == 1
    clock.advance(24 * 3600)
    subscribers.forget()
    assert shown() == 0


def test_how_long_a_subscriber_is_silent_is_shown_until_it_is_forgotten() -> None:
    clock = ManualClock()
    subscribers = Subscribers(clock, "main")
    subscribers.note(announcement("away"), True)
    clock.advance(3_600)
    [away] = subscribers.following()
    assert subscribers.silent_s(away) == 3_600


def test_r16_one_that_was_forgotten_is_known_again_by_a_later_announcement_alone() -> None:
    subscribers = Subscribers(ManualClock(), "main")
    for name in ("gone", "other"):
        subscribers.note(announcement(name, time_ms=1_000), True)
    subscribers.leave_out({"gone": 1_000})
    assert [one.name for one in subscribers.following()] == ["other"]
    subscribers.note(announcement("gone", time_ms=1_000), True)  # another replica's, read later
    subscribers.seed(DiscoveryMessage("gone", (SubscriberState("main", 0),)), 900, 0)
    assert subscribers.get("gone") is None
    subscribers.note(announcement("gone", 3, time_ms=1_001), True)
    subscribers.leave_out({"gone": 1_000})  # as the database says again and again
    assert [one.name for one in subscribers.following()] == ["gone", "other"]


class InterruptingClock(ManualClock):
    """Does something once, in another thread, when it is next asked for the time."""

    meanwhile: Callable[[], None] | None = None
    thread = threading.Thread()

    def monotonic(self) -> float:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            self.thread = threading.Thread(target=meanwhile)
            self.thread.start()
            self.thread.join(0.2)  # it may have to wait until this one has ended
        return super().monotonic()


def test_r16_one_that_announces_itself_while_it_is_forgotten_stays() -> None:
    clock = InterruptingClock()
    subscribers = Subscribers(clock, "main")
    subscribers.note(announcement("a", 1), True)
    clock.advance(24 * 3600)
    clock.meanwhile = lambda: subscribers.note(announcement("a", 2), True)
    subscribers.forget()
    clock.thread.join()
    assert [one.subscription.offset for one in subscribers.following()] == [2]
