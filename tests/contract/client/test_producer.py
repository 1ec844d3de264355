"""A producer of both clients: it numbers what it sends, and tries for ever."""

import asyncio
from typing import Any

import pytest

from packhorse import AsyncClient, Client
from packhorse.client.errors import Fenced
from tests.harness.played_service import ACCEPTED, CUT, Service, fine, problem


def produced(kind: str, service: Service, *sequences: int) -> list[Any]:
    """Send these numbers, and return what was accepted."""

    def send() -> list[Any]:
        with Client(service.url) as client, client.producer("nightly") as source:
            return [source.send(number, f"/{number}") for number in behind(source, sequences)]

    async def send_awaiting() -> list[Any]:
        async with AsyncClient(service.url) as client, client.producer("nightly") as source:
            return [await source.send(number, f"/{number}") for number in behind(source, sequences)]

    return send() if kind == "blocking" else asyncio.run(send_awaiting())


def behind(source: Any, sequences: tuple[int, ...]) -> list[int]:
    return [number for number, _ in source.after_last(zip(sequences, sequences, strict=True))]


REGISTERED = fine(name="nightly", epoch=3, last_sequence=2)


def test_a_producer_goes_on_behind_its_last_number_and_tries_for_ever(
    kind: str, service: Service
) -> None:
    faults = [CUT, problem(503, "duplicate-unknown", "0"), problem(429, "queue-full", "600")] * 20
    service.answers = [
        CUT,
        REGISTERED,
        *faults,
        ACCEPTED,
        problem(410, "sequence-passed"),
        ACCEPTED,
    ]
    accepted = produced(kind, service, 1, 2, 3, 4, 5)
    assert [one.repeated for one in accepted] == [False, True, False]
    numbers = [body["producer"]["sequence"] for method, _, _, body in service.requested if body]
    assert numbers == [3] * 61 + [4, 5]


def test_a_producer_that_somebody_else_has_registered_stops(kind: str, service: Service) -> None:
    service.answers = [REGISTERED, problem(409, "producer-fenced")]
    with pytest.raises(Fenced):
        produced(kind, service, 3)
    assert len(service.requested) == 2
