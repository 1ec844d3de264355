"""What a handler has still to hear, and when it counts as slow."""

from packhorse.jobs.event import Event
from packhorse.jobs.events.mailbox import EventMailbox, Lost


def test_events_come_in_order_and_are_counted() -> None:
    box = EventMailbox()
    box.post(Event("a"), 0.0)
    box.post(Event("b"), 0.0)
    assert box.take() == Event("a")
    assert (box.waiting, box.done, box.posted) == (2, 0, 2)
    box.finish()
    assert box.take() == Event("b")
    box.finish()
    assert box.take() is None
    assert (box.waiting, box.done, box.posted) == (0, 2, 2)


def test_what_finds_no_room_is_counted_in_its_place() -> None:
    box = EventMailbox(capacity=2)
    for topic in "abcd":
        box.post(Event(topic), 0.0)
    assert box.take() == Event("a")
    assert box.take() == Event("b")
    box.post(Event("e"), 0.0)
    assert [box.take(), box.take(), box.take()] == [Lost(2), Event("e"), None]
    assert box.lost == 2


def test_a_handler_is_slow_once_an_event_is_with_it_for_too_long() -> None:
    box = EventMailbox(slow_s=5.0)
    assert box.due() == float("inf")
    box.post(Event("a"), 10.0)
    box.take()
    assert not box.look(14.9)
    assert box.look(15.0)
    assert not box.look(16.0), "it is reported once"
    assert box.slow
    assert box.behind_s(17.0) == 7.0


def test_or_once_one_has_waited_for_too_long() -> None:
    box = EventMailbox(slow_s=5.0)
    box.post(Event("a"), 0.0)
    box.post(Event("b"), 1.0)
    box.take()
    box.finish()
    box.take()
    assert not box.look(5.9), "the first one is done, the second was posted later"
    assert box.look(6.0)


def test_it_says_what_is_slow_whether_or_not_that_has_been_taken() -> None:
    box = EventMailbox(capacity=1)
    assert box.oldest is None
    box.post(Event("a"), 0.0)
    box.post(Event("b"), 0.0)
    assert box.oldest == Event("a"), "its thread has not taken it yet"
    box.take()
    assert box.oldest == Event("a")
    box.finish()
    assert box.oldest == Lost(1)


def test_it_is_slow_until_it_has_done_everything() -> None:
    box = EventMailbox(slow_s=5.0)
    box.post(Event("a"), 0.0)
    box.post(Event("b"), 0.0)
    box.take()
    assert box.look(5.0)
    assert not box.finish()
    assert box.slow
    box.take()
    assert box.finish(), "it has caught up"
    assert not box.slow
    assert not box.look(100.0)
