"""A stream from its first block to its end, whatever the journal and the process do."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from fastapi.sse import ServerSentEvent

from packhorse.clock import SystemClock
from packhorse.runtime.feed import StreamsEnded, TooManyStreams
from packhorse_services.publisher.live.agent_log import event_logs
from packhorse_services.publisher.live.event_hub import EventHub, NoEventsYet
from packhorse_services.publisher.live.event_id import LOGS, read_position
from packhorse_services.publisher.live.event_stream import Pace, PublisherEventStream
from packhorse_services.publisher.live.events import EventType
from packhorse_services.publisher.live.stream_reader import StreamFilter
from tests.harness.live import AGENT, EVERYTHING, TOPICS, Logs
from tests.harness.publishing import AwayJournal

FAST = Pace(life_s=60, position_s=0.01, states_s=0.01, patience_s=0.05, retry_s=0.01)


class NoQueues:
    """No subscriber is known."""

    def known(self) -> list[Any]:
        return []


class Process:
    """A hub whose tails read when the test says so, on a journal that can be away."""

    def __init__(self, max_streams: int = 2) -> None:
        self.topics = Logs()
        self.journal = AwayJournal(self.topics.journal)
        logs = event_logs(self.journal, TOPICS, AGENT)  # type: ignore[arg-type]
        self.hub = EventHub(logs, NoQueues(), SystemClock(), max_streams=max_streams)  # type: ignore[arg-type]

    def begin(self) -> None:
        for source in LOGS:
            self.hub._take(source, self.hub.logs[source].where()[1], 0, (), 0)

    def append(self, source: EventType, **more: str) -> None:
        """Append a record, and have the tail read it."""
        self.topics.append(source, **more)
        log = self.hub.logs[source]
        start = log.recent.end().offset
        with log.reader(start, 0) as reader:
            records = reader.poll(0)
            self.hub._take(source, log.where()[1], start, records, reader.position())


Scenario = Callable[[Process], Coroutine[Any, Any, None]]


def play(scenario: Scenario) -> None:
    async def bounded() -> None:
        process = Process()
        process.begin()
        try:
            async with asyncio.timeout(120):
                with process.hub.place({}):
                    await scenario(process)
        finally:
            process.hub.stop(1)

    asyncio.run(bounded())


def opened(
    process: Process, wanted: StreamFilter = EVERYTHING, last_id: str = "", pace: Pace = FAST
) -> AsyncIterator[ServerSentEvent]:
    position = read_position(last_id) if last_id else None
    return PublisherEventStream(process.hub, wanted, position, pace).blocks()


async def next_event(blocks: AsyncIterator[ServerSentEvent]) -> ServerSentEvent:
    while True:
        block = await anext(blocks)
        if block.raw_data:
            return block


def test_the_first_block_gives_the_position_and_filtered_events_move_it() -> None:
    async def scenario(process: Process) -> None:
        blocks = opened(process, StreamFilter(frozenset({EventType.STATUS}), "golden"))
        first = await anext(blocks)
        assert (first.retry, first.raw_data) == (2000, None)
        process.append(EventType.STATUS, subscriber="other")
        second = await anext(blocks)
        assert second.raw_data is None
        assert read_position(str(second.id))[EventType.STATUS].offset == 1
        process.append(EventType.STATUS, subscriber="golden")
        reported = await next_event(blocks)
        assert json.loads(str(reported.raw_data))["subscriber"] == "golden"

    play(scenario)


def test_a_client_that_was_too_slow_goes_on_from_the_journal() -> None:
    async def scenario(process: Process) -> None:
        ring = process.hub.logs[EventType.PACKAGE].recent
        ring._max_events = 3
        blocks = opened(process)
        await anext(blocks)
        for _ in range(50):
            process.append(EventType.PACKAGE)
        assert len(ring._events) <= 3
        seen = [json.loads(str((await next_event(blocks)).raw_data))["offset"] for _ in range(50)]
        assert seen == list(range(50))

    play(scenario)


def test_a_stream_ends_with_its_life_and_when_the_journal_stays_away() -> None:
    async def scenario(process: Process) -> None:
        short = opened(process, pace=Pace(life_s=0.05))
        assert [block.raw_data async for block in short] == [None]
        process.append(EventType.STATUS)
        process.hub.logs[EventType.STATUS].recent._clear("other", 0)
        process.journal.away = True
        assert [block.raw_data async for block in opened(process, last_id="p0-s0-e0")] == [None]

    play(scenario)


def test_a_journal_that_comes_back_in_time_is_read_on() -> None:
    async def scenario(process: Process) -> None:
        process.append(EventType.STATUS)
        process.hub.logs[EventType.STATUS].recent._clear("other", 0)
        process.journal.away = True
        patient = Pace(position_s=0.01, patience_s=60, retry_s=0.01)
        blocks = opened(process, last_id="p0-s0-e0", pace=patient)
        await anext(blocks)
        reported = asyncio.ensure_future(next_event(blocks))
        await asyncio.sleep(0)
        process.journal.away = False
        assert (await reported).event == "status"

    play(scenario)


def test_a_stream_that_waits_ends_at_once_and_none_begins_any_more() -> None:
    async def scenario(process: Process) -> None:
        blocks = opened(process, pace=Pace())
        await anext(blocks)
        ending = asyncio.ensure_future(anext(blocks, None))
        await asyncio.sleep(0)
        process.hub.end_streams()
        assert await ending is None
        with pytest.raises(StreamsEnded), process.hub.place({}):
            pass

    play(scenario)


def test_places_are_bounded_given_back_and_none_before_the_journal_was_read() -> None:
    process = Process(max_streams=1)
    with pytest.raises(NoEventsYet), process.hub.place({}):
        pass
    process.begin()
    with process.hub.place({}), pytest.raises(TooManyStreams), process.hub.place({}):
        pass
    with process.hub.place({}):
        process.append(EventType.PACKAGE)
        assert process.hub.logs[EventType.PACKAGE].recent._events
    process.append(EventType.PACKAGE)
    assert not process.hub.logs[EventType.PACKAGE].recent._events, "nobody follows"
    process.hub.stop(1)
