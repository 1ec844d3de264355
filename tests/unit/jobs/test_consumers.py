"""Which consumer does the jobs of a topic, and what an instance says of itself."""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.jobs.consumer import Consumer, InvalidConsumer, JobContext, Outcome
from packhorse.jobs.consumers import Consumers, HandledTopics, TooManyConsumers, handled_topics_of
from packhorse.jobs.job import Job
from packhorse.jobs.names import InvalidName, matches

SEGMENTS = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("/".join)
PATTERNS = st.one_of(
    st.just("**"), SEGMENTS, SEGMENTS.map("{}/*".format), SEGMENTS.map("{}/**".format)
)
TOPICS = [
    "/".join(parts) for depth in range(1, 5) for parts in itertools.product("ab", repeat=depth)
]


def named(name: str) -> Consumer:
    def consume(job: Job, context: JobContext) -> Outcome:
        raise AssertionError(name)

    return consume


def test_the_nearest_pattern_wins() -> None:
    consumers = Consumers()
    by_pattern = {pattern: named(pattern) for pattern in ("**", "a/**", "a/b/**", "a/*", "a/b")}
    for pattern, consumer in by_pattern.items():
        consumers.add(pattern, consumer)
    for topic, pattern in {
        "a/b": "a/b",
        "a/c": "a/*",
        "a/c/d": "a/**",
        "a/b/c": "a/b/**",
        "a": "**",
        "x/y": "**",
    }.items():
        assert consumers.find(topic) is by_pattern[pattern], topic


async def waits(job: Job, context: JobContext) -> Outcome:
    return Outcome.OK


def yields(job: Job, context: JobContext) -> Iterator[Outcome]:
    yield Outcome.OK


def takes_three(a: Any, b: Any, c: Any) -> None: ...


def test_a_consumer_is_given_the_context_where_it_takes_one() -> None:
    consumers, given = Consumers(), []
    consumers.add("one", given.append)
    consumers.add("keyword", lambda job, *, size=3: given.append((job, size)))
    consumers.add("two", lambda *both: given.append(both))
    for topic in ("one", "keyword", "two"):
        consumer: Any = consumers.find(topic)
        consumer("job", "context")
    assert given == ["job", ("job", 3), ("job", "context")]


class Called:
    async def __call__(self, job: Job, context: JobContext) -> Outcome:
        return Outcome.OK


@pytest.mark.parametrize(
    ("consumer", "reported"),
    [
        (waits, "waits is an async function"),
        (partial(waits), "async function"),
        (Called(), "Called is an async function"),
        (Called, r"Called is a class; give an object of it: Called\(…\)"),
        (yields, "yields is a generator function"),
        ("images.thumbnail", "str can't be called"),
        (
            takes_three,
            r"takes_three\(a: Any, .*\) -> None can't be called with a job, nor with job and",
        ),
    ],
)
def test_what_would_never_do_a_job_is_refused_when_it_is_added(
    consumer: Any, reported: str
) -> None:
    consumers = Consumers()
    with pytest.raises(InvalidConsumer, match=reported):
        consumers.add("a", consumer)
    assert consumers.find("a") is None


def test_of_equal_patterns_the_first_wins() -> None:
    first, second = named("1"), named("2")
    consumers = Consumers()
    consumers.add("a", first)
    consumers.add("a", second)
    assert consumers.find("a") is first


@given(st.lists(PATTERNS, max_size=4))
def test_what_is_announced_is_what_is_done(patterns: list[str]) -> None:
    consumers = Consumers()
    for pattern in patterns:
        consumers.add(pattern, named(pattern))
    announced = handled_topics_of(consumers.handled_topics().announcement())
    for topic in TOPICS:
        assert announced.covers(topic) == (consumers.find(topic) is not None), topic
        assert announced.covers(topic) == any(matches(one, topic) for one in patterns), topic


@pytest.mark.parametrize("bad", ["", "a//b", "/a", "a/**/b", "*", "ä", "a b", "a" * 256])
def test_what_is_no_pattern_is_refused(bad: str) -> None:
    with pytest.raises(InvalidName):
        Consumers().add(bad, named("x"))


def test_what_a_stranger_announces_is_read_with_care() -> None:
    assert handled_topics_of(" a/* ,,b c,!x/**,!!y,\x00,*") == HandledTopics(("a/*",))
    assert handled_topics_of("") == HandledTopics()


def test_more_patterns_than_can_be_announced_are_refused() -> None:
    consumers = Consumers()
    for number in range(16):
        consumers.add(f"{number:0250d}", named("x"))
    with pytest.raises(TooManyConsumers, match="fewer"):
        consumers.add("a" * 250, named("x"))
    assert consumers.find("a" * 250) is None
