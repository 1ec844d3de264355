"""Replayable sources that publish through the replicas of one author."""

import asyncio
from dataclasses import replace

from packhorse.db.connect import async_pool
from packhorse.messaging.deduplicated import DuplicateUnknown
from packhorse.messaging.numbered import Number, number_of
from packhorse_services.publisher.outbox.producer_registry import Producer, ProducerRegistry
from packhorse_services.publisher.outbox.request import DistributionRequest
from packhorse_services.publisher.publish.publishing import Publishing
from tests.harness.journals import everything
from tests.harness.publishing import AGENT, Author, publish, request
from tests.harness.waiting import eventually

CALLER = "tester"


class Source:
    """A producer of the author's; its requests are those of its last registration."""

    def __init__(
        self, author: Author, name: str = "import", *, limit: int = 1_000, caller: str = CALLER
    ) -> None:
        self.author, self.name, self._limit, self.caller = author, name, limit, caller
        self.epoch = 0

    @property
    def qualified(self) -> str:
        return f"{AGENT}/{self.name}/{self.caller}"

    def register(self) -> Producer:
        """Register, and use the new epoch from now on."""
        registered = asyncio.run(self._ask("register"))
        self.epoch = registered.epoch
        return registered

    def known(self) -> Producer:
        return asyncio.run(self._ask("find"))

    def request(
        self, sequence: int, path: str = "/p0", *, epoch: int | None = None
    ) -> DistributionRequest:
        number = Number(self.qualified, epoch or self.epoch, sequence)
        return replace(request(path), producer=number)

    def requests(self, *sequences: int) -> list[DistributionRequest]:
        return [self.request(sequence) for sequence in sequences]

    def journaled(self) -> list[int]:
        """Return the sequences that the journal holds of this source, in its order."""
        return [
            number.sequence for number in numbers(self.author) if number.producer == self.qualified
        ]

    async def _ask(self, method: str) -> Producer:
        async with async_pool(self.author.database_url, "tests-producers") as pool:
            registry = ProducerRegistry(pool, AGENT, self._limit, patience_s=20)
            producer: Producer = await getattr(registry, method)(self.caller, self.name)
            return producer


def numbers(author: Author) -> list[Number]:
    """Return what the records of the journal say of their producers, in order."""
    records = everything(author.journal, author.topics.package)
    return [number for one in records if (number := number_of(one.headers))]


def outcome(publishing: Publishing, requested: DistributionRequest) -> object:
    """Publish one request; return its answer, or the error that refused it."""
    [pending] = publish(publishing, requested)
    return pending.future.exception() or pending.future.result()


def replay(publishing: Publishing, source: Source, last: int) -> None:
    """Do what a source does after any fault: register, and send what is behind the last."""
    known = source.register()
    for sequence in range(max(known.last_sequence + 1, 1), last + 1):
        eventually(lambda sequence=sequence: taken(publishing, source.request(sequence)))  # type: ignore[misc]


def taken(publishing: Publishing, requested: DistributionRequest) -> bool:
    answer = outcome(publishing, requested)
    assert not isinstance(answer, Exception) or isinstance(answer, DuplicateUnknown), answer
    return not isinstance(answer, Exception)
