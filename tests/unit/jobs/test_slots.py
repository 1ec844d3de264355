"""Places in all and of each queue."""

import os

from packhorse.jobs.work.heartbeat import DEFAULTS
from packhorse.jobs.work.running_jobs import Slots


def test_a_queue_has_its_own_limit_and_all_share_the_places() -> None:
    slots = Slots(places=3, usual=2)
    assert (slots.free(), slots.free_of("a", 10), slots.free_of("a", -1)) == (3, 3, 2)
    slots.take("a")
    slots.take("a")
    assert (slots.free_of("a", -1), slots.free_of("a", 10), slots.free_of("b", 5)) == (0, 1, 1)
    slots.take("b")
    assert (slots.free(), slots.free_of("c", 1)) == (0, 0)
    assert slots.taken() == {"a": 2, "b": 1}
    slots.give_back("a")
    slots.give_back("b")
    assert slots.taken() == {"a": 1}
    assert slots.free_of("a", 1) == 0


def test_a_queue_that_does_not_say_has_fifteen_at_a_time_or_as_many_as_there_are_cores() -> None:
    slots = Slots(DEFAULTS.places, DEFAULTS.usual_parallel)
    assert slots.free_of("main", -1) >= max(15, os.cpu_count() or 1)
    assert DEFAULTS.connections >= 15, "or they would wait for each other in completion()"


def test_more_than_there_are_is_nothing() -> None:
    slots = Slots(places=1, usual=0)
    slots.take("a")
    slots.take("a")
    assert (slots.free(), slots.free_of("a", 1), slots.free_of("b", -1)) == (0, 0, 0)


def test_places_that_will_be_free_are_counted_apart() -> None:
    slots = Slots(places=3, usual=1)
    for queue in ("a", "a", "b"):
        slots.take(queue)
    soon = slots.without(["a", "b"])
    assert (soon.free(), soon.taken()) == (2, {"a": 1})
    assert (slots.free(), slots.taken()) == (0, {"a": 2, "b": 1})
