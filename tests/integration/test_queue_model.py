"""R15-R17: queues are what plain lists are, on every journal, with a cache of next to nothing."""

from typing import Any

import pytest
from hypothesis import Phase
from hypothesis.errors import Flaky

from packhorse.messaging.sql.segments import SegmentLimits
from packhorse_services.publisher.queues.cache.columns import ColumnSegment
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from packhorse_services.publisher.queues.cache.queue_feed import QueueFeed
from packhorse_services.publisher.queues.cache.scanning import QueuePage
from packhorse_services.publisher.queues.queue import Queues
from tests.harness.depth import at_depth, examples
from tests.harness.journals import JournalBackend, KafkaBackend, MemoryBackend, SqlBackend
from tests.harness.kafka.broker import RunningKafka
from tests.harness.machines import play
from tests.integration.queue_model import QueueMachine


def play_on(on: JournalBackend, examples: int, **options: Any) -> None:
    class Machine(QueueMachine):
        backend = on

    play(Machine, examples, steps=20, **options)


def test_r15_r17_queues_agree_with_lists_on_memory() -> None:
    play_on(MemoryBackend(), examples(60))


def test_r15_r17_queues_agree_with_lists_on_sql(database_url: str) -> None:
    play_on(SqlBackend(database_url, SegmentLimits(records=8)), at_depth(30, 2))


@pytest.mark.kafka
@pytest.mark.depth  # the model is in front of the journal, which SQL and memory play too
def test_r15_r17_queues_agree_with_lists_on_kafka(kafka: RunningKafka) -> None:
    play_on(KafkaBackend(kafka.url), examples(12))


def _one_more(self: QueueCache, gone: int) -> None:
    if gone:
        self._low = self._segments[gone - 1].last + 1
        del self._segments[: gone + 1]
        self._index()


def _without_moving_low(self: QueueCache, gone: int) -> None:
    del self._segments[:gone]
    self._index()


def _bytes_of_whole_segments(self: QueueCache, after: int) -> tuple[int, int]:
    whole = (one.body_bytes for one in self._segments if one.last > after)
    return self._length(after), sum(whole)


BROKEN: dict[str, tuple[type, str, Any]] = {
    "a queue begins at its offset": (
        *(QueueCache, "_start"),
        lambda self, after: max(after, self._oldest),
    ),
    "trimming takes what is needed": (QueueCache, "_release", _one_more),
    "the low end stays": (QueueCache, "_release", _without_moving_low),
    "the cache grows": (QueueCache, "_shrink", lambda _: None),
    "what the log forgot is shown": (QueueCache, "forget_below", lambda *_: None),
    "bytes by the segment": (QueueCache, "backlog", _bytes_of_whole_segments),
    "prefixes of names": (ColumnSegment, "_is_below", lambda *_: True),
    "pages end where the cache begins": (
        *(QueueFeed, "_continued"),
        lambda _, __, page: QueuePage(page.entries),
    ),
    "offsets of another log": (
        Queues,
        "subscription_of",
        lambda _, one: one.subscription,
    ),
}


@pytest.mark.proof
@pytest.mark.parametrize("fault", BROKEN)
def test_the_machine_finds_what_is_broken(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BROKEN[fault])
    monkeypatch.setattr("tests.integration.queue_model.DEADLINE_S", 3.0)
    with pytest.raises((AssertionError, Flaky)):
        play_on(MemoryBackend(), 300, phases=[Phase.generate], database=None, derandomize=True)
