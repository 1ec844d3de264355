"""Which queue takes a topic, and what no queue can be."""

from typing import Any

import pytest

from packhorse.jobs.names import InvalidName
from packhorse.jobs.queue import InvalidQueue, QueueConfiguration, choose_queue

MAIN = QueueConfiguration("main", ("**",), ranking=-(2**31) + 1)


def queue(name: str, *patterns: str, ranking: int = 0) -> QueueConfiguration:
    return QueueConfiguration(name, patterns, ranking=ranking)


@pytest.mark.parametrize(
    ("topic", "queues", "name"),
    [
        ("a/b", [], "main"),
        ("a/b", [queue("x", "a/**"), queue("y", "a/*")], "y"),
        ("a/b", [queue("x", "a/b"), queue("y", "a/*")], "x"),
        ("a/b", [queue("x", "a/b"), queue("y", "**", ranking=1)], "y"),
        ("a/b/c", [queue("x", "a/*"), queue("y", "a/**")], "y"),
        ("a/b/c", [queue("x", "a/**"), queue("y", "a/b/**")], "y"),
        ("a/b", [queue("y", "a/b"), queue("x", "a/b")], "x"),
        ("b", [queue("x", "a/**")], "main"),
    ],
)
def test_the_queue_of_a_topic(topic: str, queues: list[QueueConfiguration], name: str) -> None:
    assert choose_queue(topic, [MAIN, *queues]) == name


@pytest.mark.parametrize(
    "given",
    [
        {"patterns": ()},
        {"patterns": ("a",) * 101},
        {"max_parallel": 0},
        {"max_parallel": 1001},
        {"max_retries": -2},
        {"max_retries": 1_000_001},
        {"retry_delay_s": -1.0},
        {"retry_delay_s": float("nan")},
        {"max_retry_delay_s": float("inf")},
        {"timeout_s": 0.0},
        {"timeout_s": -1.0},
        {"timeout_s": float("inf")},
        {"ranking": 2**31},
        {"ranking": -(2**31) - 1},
    ],
)
def test_what_no_queue_can_be(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidQueue):
        QueueConfiguration(**{"name": "x", "patterns": ("a",), **given})


@pytest.mark.parametrize(
    "given",
    [
        {"patterns": ("a",) * 100},
        {"ranking": 2**31 - 1},
        {"ranking": -(2**31)},
        {"max_parallel": 1},
        {"max_parallel": 1000},
        {"max_retries": -1},
        {"max_retries": 1_000_000},
        {"retry_delay_s": 0.0, "max_retry_delay_s": 365 * 86_400.0, "timeout_s": 0.001},
    ],
)
def test_the_limits_of_a_queue_are_allowed(given: dict[str, Any]) -> None:
    QueueConfiguration(**{"name": "x", "patterns": ("a",), **given})


@pytest.mark.parametrize("given", [{"name": "a/b"}, {"name": ""}, {"patterns": ("a/*/b",)}])
def test_names_of_queues_and_patterns(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidName):
        QueueConfiguration(**{"name": "x", "patterns": ("a",), **given})
