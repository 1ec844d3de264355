"""Producers over HTTP: registering, asking, distributing with a sequence, and every refusal."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse.db.connect import connect
from tests.harness.publisher_service import PublisherService, as_, kind
from tests.harness.publishing import page


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> PublisherService:
    service = PublisherService(database_url, tmp_path, producers=20)
    service.author.write(page("/content/site/a"), page("/b"))
    return service


async def register(
    service: PublisherService, name: str = "import", *, token: str = "admin"
) -> httpx.Response:
    return await service.client.put(f"/producers/{name}", headers=as_(token))


async def send(
    service: PublisherService, epoch: int, sequence: int, path: str = "/b", **more: Any
) -> httpx.Response:
    number = {"name": "import", "epoch": epoch, "sequence": sequence}
    return await service.distribute(path, producer=number, **more)


def test_a_source_registers_sends_and_asks_how_far_it_has_come(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        registered = (await register(service)).json()
        assert registered["last_sequence"] is None
        first = (await send(service, registered["epoch"], 3)).json()
        again = (await send(service, registered["epoch"], 3)).json()
        assert (first["repeated"], again["repeated"]) == (False, True)
        assert (again["id"], again["offset"]) == (first["id"], first["offset"])
        known = await service.get("/producers/import")
        assert known["epoch"] == registered["epoch"]
        assert (known["last_sequence"], known["last_persisted_sequence"]) == (3, 3)
        times = [datetime.fromisoformat(known[name]) for name in ("registered_at", "used_at")]
        assert times == sorted(times)
        anew = (await register(service)).json()
        assert anew["epoch"] > registered["epoch"]
        assert anew["last_sequence"] == 3

    service.run(scenario)
    assert len(service.author.journaled()) == 1


def test_what_a_source_is_refused_says_what_to_do(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        stranger = await send(service, 1, 1)
        assert kind(stranger) == (409, "producer-unknown")
        assert "PUT /producers/import, " in stranger.json()["detail"]
        nobody = await service.client.get("/producers/nobody")
        assert "PUT /producers/nobody registers it" in nobody.json()["detail"]
        old = (await register(service)).json()["epoch"]
        new = (await register(service)).json()["epoch"]
        fenced = await send(service, old, 1)
        assert kind(fenced) == (409, "producer-fenced")
        assert fenced.json()["detail"].endswith("register again with PUT /producers/import")
        assert (await send(service, new, 5)).status_code == 202
        assert kind(await send(service, new, 4)) == (410, "sequence-passed")
        assert kind(await send(service, new, 6, "/none")) == (404, "not-found")
        assert (await send(service, new, 6)).status_code == 202

    service.run(scenario)
    assert len(service.author.journaled()) == 2


def test_a_duplicate_on_its_way_is_unknown_until_it_is_in_the_log(
    service: PublisherService,
) -> None:
    async def scenario(service: PublisherService) -> None:
        epoch = (await register(service)).json()["epoch"]
        assert (await send(service, epoch, 1)).status_code == 202
        service.journal.away = True
        answer = await send(service, epoch, 2, headers={"Prefer": "wait=9"})
        first = answer.json()
        assert (first["offset"], "preference-applied" in answer.headers) == (None, False)
        unknown = await send(service, epoch, 2)
        assert kind(unknown) == (503, "duplicate-unknown")
        assert int(unknown.headers["Retry-After"]) >= 1
        known = await service.get("/producers/import")
        assert (known["last_sequence"], known["last_persisted_sequence"]) == (2, 1)
        service.journal.away = False

        async def settled() -> bool:
            answer = await send(service, epoch, 2)
            return answer.status_code == 202 and answer.json()["id"] == first["id"]

        await service.until(settled)

    service.run(scenario)
    assert len(service.author.journaled()) == 2


def test_the_number_of_producers_is_bounded(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        for name in ("one", "two"):
            assert (await register(service, name)).status_code == 200
        refused = await register(service, "three")
        assert kind(refused) == (429, "too-many-producers")
        assert refused.headers["Retry-After"]
        assert (await register(service, "one")).status_code == 200
        assert (await register(service, "three", token="editor")).status_code == 200

    service.run(scenario)


WAITING = "SELECT wait_event_type FROM pg_stat_activity WHERE datname = current_database()"


async def pass_over(service: PublisherService) -> httpx.Response:
    epoch = (await service.get("/producers/import"))["epoch"]
    body = {"epoch": epoch, "last_sequence": 1}
    return await service.client.patch("/producers/import", json=body)


@pytest.mark.parametrize("ask", [register, pass_over])
def test_a_producer_that_is_locked_holds_no_other_route_up(
    service: PublisherService, ask: Callable[[PublisherService], Awaitable[httpx.Response]]
) -> None:
    async def scenario(service: PublisherService) -> None:
        assert (await register(service)).status_code == 200
        registry = service.parts.app.state.publisher.producers
        with connect(service.author.database_url, "tests") as holder:
            holder.execute("SELECT FROM bookkeeping.producer FOR UPDATE")
            refused = await ask(service)
            assert kind(refused) == (503, "producer-in-use")
            assert refused.headers["Retry-After"] == "1"
            registry._patience_ms = 60_000
            storm = [asyncio.create_task(ask(service)) for _ in range(12)]
            while not any("Lock" in row for row in service.author.rows(WAITING)):
                await asyncio.sleep(0.01)
            assert (await service.client.get("/distributions")).status_code == 200
            assert not any(one.done() for one in storm)
            holder.rollback()
        assert {(await one).status_code for one in storm} == {200}

    service.run(scenario)


def test_a_producer_is_its_callers_own(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        epoch = (await register(service)).json()["epoch"]
        requested = await service.client.get("/producers/import", headers=as_("editor"))
        assert kind(requested) == (404, "unknown-producer")
        theirs = await send(service, epoch, 1, "/content/site/a", headers=as_("editor"))
        assert kind(theirs) == (409, "producer-unknown")
        mine = (await register(service, token="editor")).json()
        assert mine["last_sequence"] is None
        for token in ("viewer", "nobody"):
            assert (await register(service, token=token)).status_code == 403
            got = await service.client.get("/producers/import", headers=as_(token))
            assert got.status_code == 403

    service.run(scenario)


@pytest.mark.parametrize(
    "producer",
    [
        {"name": "import", "epoch": 1},
        {"name": "import", "epoch": 1, "sequence": -1},
        {"name": "import", "epoch": 1, "sequence": 2**53},
        {"name": "import", "epoch": 0, "sequence": 1},
        {"name": "import", "epoch": 1, "sequence": 1.5},
        {"name": "import", "epoch": 1, "sequence": True},
        {"name": "a/b", "epoch": 1, "sequence": 1},
        {"name": "", "epoch": 1, "sequence": 1},
        {"name": "import\n", "epoch": 1, "sequence": 1},
        {"name": "import", "epoch": 1, "sequence": 1, "more": 1},
        "import",
    ],
)
def test_a_number_that_is_none_is_refused(service: PublisherService, producer: Any) -> None:
    async def scenario(service: PublisherService) -> None:
        assert (await service.distribute("/b", producer=producer)).status_code == 422

    service.run(scenario)


def test_a_key_and_a_producer_exclude_each_other(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        epoch = (await register(service)).json()["epoch"]
        both = await send(service, epoch, 1, headers={"Idempotency-Key": "k"})
        assert both.status_code == 422
        assert "not both" in both.json()["detail"]
        for name in ("-x", "a%2Fb", "a b", "x" * 101):
            assert (await register(service, name)).status_code in {404, 422}

    service.run(scenario)
    assert service.author.journaled() == []
