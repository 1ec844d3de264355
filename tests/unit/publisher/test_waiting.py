"""Waiting for packages costs by changes, not by how many wait (R30)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from packhorse.runtime.changes import Changes
from packhorse_services.publisher import deliveries
from packhorse_services.publisher.deliveries import Deliveries
from packhorse_services.publisher.distributions import Distributions, DistributionState

WAITERS, CHANGES = 300, 20


class Settled:
    """A settlement of which only the changes are asked."""

    def __init__(self) -> None:
        self.changes = Changes()


class Counted(Deliveries):
    """Deliveries to subscribers whose progress the test sets; counts how often it is looked at."""

    def __init__(self) -> None:
        nothing: Any = None
        settled: Any = Settled()
        super().__init__(nothing, nothing, settled)
        self.progress = [-1]
        self.looks = 0

    def done(self) -> Iterator[int]:
        self.looks += 1
        yield from self.progress


async def turn() -> None:
    """Let everybody who was woken look and wait again."""
    for _ in range(5):
        await asyncio.sleep(0)


async def changes(found: Counted) -> None:
    await turn()
    for _ in range(CHANGES):
        found.changes.announce()
        await turn()


def waits(found: Counted) -> list[asyncio.Task[DistributionState]]:
    nothing: Any = None
    distributions = Distributions(nothing, nothing, found)
    return [asyncio.create_task(distributions.wait(0, 60)) for _ in range(WAITERS)]


def test_r30_all_who_wait_share_one_look_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "_SLOWEST_S", 1e9)

    async def scenario() -> None:
        found = Counted()
        waiting = waits(found)
        await changes(found)
        assert found.looks == 1 + CHANGES
        assert not any(one.done() for one in waiting)
        found.progress = [0]
        found.changes.announce()
        assert set(await asyncio.gather(*waiting)) == {DistributionState.DISTRIBUTED}

    asyncio.run(scenario())


def test_who_falls_silent_is_waited_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "_SLOWEST_S", 0.0)
    found = Counted()
    assert found.is_awaited(0)
    found.progress = []
    assert not found.is_awaited(0), "and nothing has changed meanwhile"


def test_who_is_new_is_waited_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "_SLOWEST_S", 1e9)
    found = Counted()
    found.progress = [5]
    assert not found.is_awaited(5)
    found.progress = [5, 4]
    assert found.is_awaited(5), "an old look never says that all are done"
