"""One author database and journal, with publishers that come and go on it."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from packhorse.messaging.api import Record
from packhorse.messaging.memory import shared_log
from packhorse.messaging.topics import standard_topics
from tests.harness.journals import everything
from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import TOPICS, page
from tests.harness.waiting import eventually

Scenario = Callable[[PublisherService], Awaitable[None]]


class Site:
    """One author database and journal, and publishers that come and go on it."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self._url, self._folder = database_url, folder
        author = PublisherService(database_url, folder).author
        author.write(*(page(f"/p{number}") for number in range(6)))

    def run(self, scenario: Scenario) -> None:
        """Play a scenario with a publisher that has just started."""
        PublisherService(self._url, self._folder).run(scenario)

    def recreate(self, topic: str) -> None:
        """Remove a topic with all its records, and make it anew."""
        log = shared_log(str(self._folder))
        log.remove_topic(topic)
        service = PublisherService(self._url, self._folder)
        service.journal.create_topics(standard_topics(TOPICS))

    def rows(self, query: str, *parameters: object) -> list[Any]:
        return PublisherService(self._url, self._folder).author.rows(query, *parameters)


async def publish(s: PublisherService, count: int = 5) -> list[str]:
    return [(await s.accepted(f"/p{number}"))["id"] for number in range(count)]


async def states(s: PublisherService, package_id: str) -> dict[str, str]:
    found = await s.get(f"/distributions/{package_id}")
    return {one["subscriber"]: one["state"] for one in found["subscribers"]}


async def until_failed(s: PublisherService, name: str, length: int) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def known() -> bool:
        answer = await s.client.get(f"/queues/{name}/errors")
        found.update(answer.json())
        return answer.status_code == 200 and found["length"] == length

    await s.until(known)
    return found


def until_remembered(s: PublisherService, count: int) -> None:
    query = "SELECT FROM bookkeeping.known_subscriber"
    eventually(lambda: len(s.author.rows(query)) == count, what=f"{count} are remembered")


def events(s: PublisherService) -> list[Record]:
    return everything(s.journal, TOPICS.event)


async def reported(s: PublisherService, count: int) -> list[dict[str, Any]]:
    async def enough() -> bool:
        return len(events(s)) >= count

    await s.until(enough)
    return [json.loads(record.value) for record in events(s)]
