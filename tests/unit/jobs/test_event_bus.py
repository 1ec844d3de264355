"""Events of one process: order, isolation of slow and failing handlers, what is refused."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from packhorse.jobs.event import Event
from packhorse.jobs.events.bus import EventBus, EventNotStored
from packhorse.jobs.events.delivery import GAP
from packhorse.jobs.names import InvalidName, InvalidProperties
from tests.harness.clock import ManualClock
from tests.harness.waiting import eventually

WAIT_S = 120.0  # longer than any pause of a busy machine


def running(bus: EventBus) -> Iterator[EventBus]:
    bus.start()
    yield bus
    bus.stop(WAIT_S)
    assert bus.failure() is None


@pytest.fixture
def bus() -> Iterator[EventBus]:
    yield from running(EventBus(slow_s=WAIT_S, capacity=10))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def strict(clock: ManualClock) -> Iterator[EventBus]:
    """Nobody waits for long on this one, once the test has moved the clock."""
    yield from running(EventBus(slow_s=0.2, capacity=10, clock=clock))


class Stuck:
    """A handler that hangs until it is released."""

    def __init__(self) -> None:
        self.entered, self.let_go, self.heard = threading.Event(), threading.Event(), list[Event]()

    def __call__(self, event: Event) -> None:
        self.heard.append(event)
        self.entered.set()
        assert self.let_go.wait(WAIT_S)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.let_go.set()


def send_until_slow(bus: EventBus, event: Event, stuck: Stuck, clock: ManualClock) -> None:
    """Send an event; the sender waits until the handler, which has it, is slow."""
    sending = threading.Thread(target=bus.send, args=(event,), daemon=True)
    sending.start()
    assert stuck.entered.wait(WAIT_S)
    clock.advance(0.3)
    sending.join(WAIT_S)
    assert not sending.is_alive()


def test_send_returns_when_all_have_heard_it_in_order(bus: EventBus) -> None:
    heard: list[Event] = []
    bus.subscribe("a/*", heard.append)
    bus.subscribe("other", lambda _: pytest.fail("not for this one"))
    bus.post(Event("a/b", {"n": 1}))
    bus.send(Event("a/c", {"n": 2}))
    assert heard == [Event("a/b", {"n": 1}), Event("a/c", {"n": 2})]
    assert all(event.is_local for event in heard)


def test_only_what_the_filter_wants(bus: EventBus) -> None:
    heard: list[Event] = []
    bus.subscribe(["a", "b"], heard.append, where=[{">=n": 2}])
    for n in range(4):
        bus.send(Event("b", {"n": n}))
    assert [event.properties["n"] for event in heard] == [2, 3]


def test_a_slow_handler_is_reported_and_delays_nobody_afterwards(
    strict: EventBus, stuck: Stuck, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    slow = strict.subscribe("**", stuck)
    strict.subscribe("**", heard.append)
    with caplog.at_level(logging.WARNING):
        send_until_slow(strict, Event("first"), stuck, clock)
        for _ in range(8):
            strict.send(Event("later"))
    eventually(lambda: len(heard) == 9)
    assert stuck.heard == [Event("first")]
    assert (slow.state().slow, slow.state().waiting) == (True, 9)
    assert sum("Stuck is slow at first" in message for message in caplog.messages) == 1
    stuck.let_go.set()
    eventually(lambda: not slow.state().slow)
    assert slow.state().done == 9


def test_a_slow_handler_is_noticed_when_nobody_waits_for_it(
    strict: EventBus, stuck: Stuck, clock: ManualClock
) -> None:
    slow = strict.subscribe("**", stuck)
    strict.post(Event("t"))
    clock.advance(0.3)
    eventually(lambda: slow.state().slow)
    assert slow.state().behind_s > 0.2


def test_what_a_slow_handler_has_no_room_for_is_lost_and_reported(
    strict: EventBus, stuck: Stuck, clock: ManualClock
) -> None:
    slow = strict.subscribe("t", stuck, gaps=True)
    send_until_slow(strict, Event("t"), stuck, clock)
    for _ in range(25):
        strict.post(Event("t"))
    assert slow.state().lost == 15
    stuck.let_go.set()
    eventually(lambda: len(stuck.heard) == 12)
    assert stuck.heard[-1] == Event(GAP, {"reason": "slow", "lost": 15})


def test_a_burst_is_not_lost_to_a_handler_that_keeps_up(bus: EventBus) -> None:
    heard: list[Event] = []
    bus.subscribe("t", heard.append)
    for n in range(2_000):
        bus.post(Event("t", {"n": n}))
    bus.send(Event("t", {"n": 2_000}))
    assert [event.properties["n"] for event in heard] == list(range(2_001))


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_a_handler_that_raises_hears_the_next_one(bus: EventBus, error: BaseException) -> None:
    heard: list[str] = []

    def fail(event: Event) -> None:
        heard.append(event.topic)
        raise error

    subscribed = bus.subscribe("**", fail)
    bus.send(Event("a"))
    bus.send(Event("b"))
    assert heard == ["a", "b"]
    assert subscribed.state().failed == 2


def test_a_handler_may_send_and_subscribe_and_cancel(bus: EventBus) -> None:
    heard: list[str] = []

    def answer(event: Event) -> None:
        heard.append(event.topic)
        if event.topic == "question":
            bus.send(Event("answer"))
            assert not subscribed.state().slow, "it has waited for itself"
            heard.append("sent")
            subscribed.cancel()

    subscribed = bus.subscribe("**", answer)
    bus.send(Event("question"))
    bus.send(Event("after"))
    assert heard == ["question", "sent"], "what came after it was cancelled is not heard"


def test_what_the_sender_changes_afterwards_stays_its_own(bus: EventBus) -> None:
    heard: list[Event] = []
    bus.subscribe("t", heard.append)
    given = {"list": [1]}
    bus.send(Event("t", given))
    given["list"].append(2)
    assert heard == [Event("t", {"list": [1]})]
    with pytest.raises(TypeError):
        heard[0].properties["x"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("topic", "properties", "error"),
    [
        ("a b", {}, InvalidName),
        ("a/", {}, InvalidName),
        ("t", {"event.application": "forged"}, InvalidProperties),
        ("t", {"event.application": None, "event.distribute": True}, InvalidProperties),
        ("t", {"x": object()}, InvalidProperties),
        ("t", {"x": "y" * 70_000}, InvalidProperties),
        ("t", {"event.distribute": True}, EventNotStored),
    ],
)
def test_what_is_refused_is_heard_by_nobody(
    bus: EventBus, topic: str, properties: dict[str, Any], error: type[Exception]
) -> None:
    heard: list[Event] = []
    bus.subscribe("**", heard.append)
    for report in (bus.send, bus.post):
        with pytest.raises(error):
            report(Event(topic, properties))
    bus.send(Event("last"))
    assert heard == [Event("last")]


def test_stopping_lets_handlers_hear_what_was_sent() -> None:
    heard: list[Event] = []
    bus = EventBus()
    bus.subscribe("t", heard.append)
    for _ in range(100):
        bus.post(Event("t"))
    bus.start()
    bus.stop(WAIT_S)
    assert len(heard) == 100
    bus.subscribe("t", heard.append)
    bus.send(Event("t"))
    assert len(heard) == 100


def test_the_bus_knows_what_is_subscribed_to(bus: EventBus) -> None:
    assert bus.patterns() == ()
    first = bus.subscribe(["b", "a/*"], print)
    bus.subscribe("b", print)
    assert bus.patterns() == ("a/*", "b")
    everything = bus.subscribe("**", print)
    assert bus.patterns() == ("**",)
    everything.cancel()
    first.cancel()
    assert bus.patterns() == ("b",)


def test_what_serves_handlers_begins_with_the_first_one(bus: EventBus) -> None:
    begun: list[str] = []
    bus.once_heard(lambda: begun.append("before"))
    assert begun == []
    bus.subscribe("t/a", lambda _: None)
    bus.once_heard(lambda: begun.append("after"))
    bus.subscribe("t/b", lambda _: None)
    assert begun == ["before", "after"]
