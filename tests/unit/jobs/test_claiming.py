"""What a worker would claim: queues, topics, and shares of the places."""

from datetime import UTC, datetime

from packhorse.jobs.consumer import JobContext, Outcome
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.job import Job
from packhorse.jobs.queue import JobQueue, Layout, QueueConfiguration, QueueType
from packhorse.jobs.work.claiming import (
    Alone,
    ClaimPlanner,
    Consumes,
    JobQueueCache,
    Offer,
    announced_in,
    leading_in,
    offers,
)
from packhorse.jobs.work.running_jobs import Slots
from packhorse.topology.properties import CONSUMERS
from packhorse.topology.view import ClusterView, InstanceDescription, TopologyView
from tests.harness.jobs.made import claimed

MANY, TURNS = QueueType.UNORDERED, QueueType.TOPIC_ROUND_ROBIN


def queue(name: str, *, suspended: bool = False, **given: object) -> JobQueue:
    configuration = QueueConfiguration(name, (f"{name}/**",), **given)  # type: ignore[arg-type]
    return JobQueue(configuration, suspended, 1, datetime(2026, 1, 1, tzinfo=UTC))


def layout(queues: list[JobQueue], *topics: str) -> Layout:
    return Layout({one.name: one for one in queues}, {one: one.split("/")[0] for one in topics})


def consume(job: Job, context: JobContext) -> Outcome:
    return Outcome.OK


def test_only_topics_that_are_done_here_are_offered_and_no_suspended_queue() -> None:
    known = layout(
        [queue("a", type=MANY), queue("b"), queue("c", suspended=True)],
        *("a/1", "a/2", "b/1", "b/2", "b/3", "c/1"),
    )
    does = {"a/2", "b/1", "c/1"}
    found = offers(known, does.__contains__, None)
    assert [(one.configuration.name, one.topics, one.unconsumed) for one in found] == [
        ("a", ("a/2",), ()),
        ("b", ("b/1",), ()),
    ]
    found = offers(known, does.__contains__, {"b/2"}.__contains__)
    assert [one.unconsumed for one in found] == [(), ("b/3",)]
    assert offers(known, set().__contains__, None) == []


def test_places_are_shared_and_ordered_queues_take_one() -> None:
    slots = Slots(places=10, usual=3)
    offered = [
        Offer(queue("a", type=MANY, max_parallel=100).configuration, ("a/1",)),
        Offer(queue("b").configuration, ("b/1",)),
        Offer(queue("c", type=TURNS).configuration, ("c/1",)),
    ]
    requests = ClaimPlanner()
    requests.had("c", "c/1")
    for _ in range(4):
        found = {one.queue: one for one in requests.requests(offered, slots)}
        assert set(found) == {"a", "b", "c"}
        assert found["b"].places == 1
        assert found["c"].places in (2, 3)
        assert sum(one.places for one in found.values()) <= 10
        assert (found["a"].type, found["c"].turn, found["a"].turn) == (MANY, "c/1", "")
    slots.take("b")
    assert {one.queue for one in requests.requests(offered, slots)} == {"a", "c"}


def test_few_places_go_to_each_queue_in_turn() -> None:
    slots = Slots(places=1, usual=1)
    names = ("a", "b", "c")
    offered = [Offer(queue(one, type=MANY).configuration, (f"{one}/1",)) for one in names]
    requests, first = ClaimPlanner(), set()
    for _ in names:
        [request] = requests.requests(offered, slots)
        first.add(request.queue)
    assert first == set(names)
    slots.take("x")
    assert requests.requests(offered, slots) == []
    assert requests.requests([], slots) == []


def test_the_offering_follows_hints_time_and_consumers() -> None:
    consumers, slots = Consumers(), Slots(places=4, usual=4)
    queue_cache = JobQueueCache(consumers, Alone(), longest_s=5.0)
    assert queue_cache.requests(slots) == []
    assert queue_cache.is_outdated(0.0)
    queue_cache.updating()
    queue_cache.update(layout([queue("a", type=MANY)], "a/1"), 100.0)
    assert not queue_cache.is_outdated(104.9)
    assert queue_cache.is_outdated(105.0)
    queue_cache.hint()
    assert not queue_cache.is_outdated(100.1)
    assert queue_cache.is_outdated(100.25)
    assert queue_cache.requests(slots) == []
    consumers.add("a/**", consume)
    queue_cache.change()
    assert [one.topics for one in queue_cache.requests(slots)] == [("a/1",)]
    queue_cache.had(claimed(topic="a/1", queue="a"))
    assert queue_cache.requests(slots)[0].turn == "a/1"
    assert not queue_cache.leads()("a/1")


def view_of(*announced: str, local: int = 0) -> TopologyView:
    instances = tuple(
        InstanceDescription(str(number), "c", number == 0, number == local, {CONSUMERS: reported})
        for number, reported in enumerate(announced)
    )
    return TopologyView(ClusterView("c", instances))


def consumed_by(*announced: str) -> Consumes:
    own = Consumers()
    own.add("own/**", consume)
    return announced_in(view_of(*announced), own)


def test_the_first_that_announces_a_topic_leads_it() -> None:
    announced = ("", "a/*", "a/**,b")
    for topic, leader in {"a/x": 1, "a/x/y": 2, "b": 2, "c": None}.items():
        leads = [leading_in(view_of(*announced, local=one))(topic) for one in range(3)]
        assert leads == [one == leader for one in range(3)], topic


def test_what_any_instance_announces_is_consumed() -> None:
    consumes = consumed_by("", "a/*", "b/**")
    wanted = {"own/x": True, "a/x": True, "a/x/y": False, "b/x/y": True, "c": False}
    assert {topic: consumes(topic) for topic in wanted} == wanted
