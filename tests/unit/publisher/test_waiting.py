"""Waiting for packages costs by changes, not by how many wait (R30)."""

import asyncio
from typing import Any

from packhorse.runtime.changes import ChangeSignal
from packhorse_services.publisher.distributions.delivery_status import DeliveryStatusQuery
from packhorse_services.publisher.distributions.distribution_query import DistributionQuery

WAITERS, CHANGES = 300, 20


class Settled:
    """A status watermark of which only the changes are asked."""

    def __init__(self) -> None:
        self.changes = ChangeSignal()


class Counted(DeliveryStatusQuery):
    """Deliveries to subscribers whose progress the test sets; counts how often it is looked at."""

    def __init__(self, look_s: float = 1e9) -> None:
        nothing: Any = None
        settled: Any = Settled()
        super().__init__(nothing, nothing, settled, look_s=look_s)
        self.progress = {"a": -1}
        self.looks = 0

    def live(self) -> dict[str, int]:
        self.looks += 1
        return self.progress


async def turn() -> None:
    """Let everybody who was woken look and wait again."""
    for _ in range(5):
        await asyncio.sleep(0)


async def changes(found: Counted) -> None:
    await turn()
    for _ in range(CHANGES):
        found.changes.announce()
        await turn()


def waits(found: Counted) -> list[asyncio.Task[None]]:
    nothing: Any = None
    distributions = DistributionQuery(nothing, nothing, found)
    return [asyncio.create_task(distributions.wait(0, (), 60)) for _ in range(WAITERS)]


def test_r30_all_who_wait_share_one_look_for_each_change() -> None:
    async def scenario() -> None:
        found = Counted()
        waiting = waits(found)
        await changes(found)
        assert found.looks == 1 + CHANGES
        assert not any(one.done() for one in waiting)
        found.progress = {"a": 0}
        found.changes.announce()
        await asyncio.gather(*waiting)

    asyncio.run(scenario())


def test_who_falls_silent_is_waited_for_no_more() -> None:
    found = Counted(look_s=0.0)
    assert found.is_awaited(0)
    found.progress = {}
    assert not found.is_awaited(0), "and nothing has changed meanwhile"


def test_who_is_new_is_waited_for_at_once() -> None:
    found = Counted()
    found.progress = {"a": 5}
    assert not found.is_awaited(5)
    found.progress = {"a": 5, "b": 4}
    assert found.is_awaited(5), "an old look never says that all are done"


def test_r35_only_those_that_a_package_is_for_are_waited_for() -> None:
    found = Counted()
    found.progress = {"mended": 5, "blocked": 4}
    assert found.is_awaited(5)
    assert not found.is_awaited(5, ["mended", "forgotten"])
    assert found.is_awaited(5, ["blocked"])
