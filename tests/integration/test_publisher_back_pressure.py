"""429 while a live subscriber is too far behind, over HTTP; what is known gets its answer."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse.db.connect import connect
from packhorse.db.pool import ask
from packhorse.runtime.metrics import PUBLISHER_REQUESTS
from packhorse_services.publisher.publish import admission, publish_queue
from packhorse_services.publisher.releases import planning
from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import AGENT, page


@pytest.fixture
def service(database_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> PublisherService:
    limits: dict[str, Any] = getattr(request, "param", {"queue_packages": 2})
    service = PublisherService(database_url, tmp_path, **limits)
    service.author.write(page("/p"), page("/q"))
    return service


async def fill(service: PublisherService, packages: int = 3) -> None:
    """Announce a subscriber that has everything, and publish packages that it has not."""
    await service.announce("slow", -1)
    for _ in range(packages):
        await service.accepted("/p")
    await service.until(lambda: _has(service, packages))


async def _has(service: PublisherService, packages: int) -> bool:
    queue = await service.get("/queues/slow")
    return bool(queue["length"] >= packages)


def throttled() -> float:
    return PUBLISHER_REQUESTS.labels(AGENT, "throttled")._value.get()


def assert_queue_full(answer: httpx.Response) -> None:
    assert answer.status_code == 429, answer.text
    assert int(answer.headers["Retry-After"]) > 0
    problem = answer.json()
    assert problem["type"] == "/problems/queue-full"
    assert "'slow' has 3 packages" in problem["detail"]
    assert "GET /queues/slow" in problem["detail"]


def test_a_full_queue_refuses_all_that_would_make_it_longer(service: PublisherService) -> None:
    async def play(service: PublisherService) -> None:
        await fill(service)
        before = throttled()
        for action in ("ADD", "DELETE", "INVALIDATE"):
            assert_queue_full(await service.distribute("/p", action=action))
        assert_queue_full(await service.distribute(deep_paths=["/p"]))
        assert throttled() == before + 4
        assert (await service.dry_run("/p")).status_code == 200
        assert (await service.distribute(action="TEST")).status_code == 202

    service.run(play)


@pytest.mark.parametrize("service", [{"queue_bytes": 1}], indirect=True)
def test_bytes_count_as_packages_do(service: PublisherService) -> None:
    async def play(service: PublisherService) -> None:
        await fill(service, 1)
        answer = await service.distribute("/q")
        assert answer.status_code == 429
        assert "1 bytes may wait" in answer.json()["detail"]

    service.run(play)


def test_requests_are_taken_again_when_the_subscriber_has_caught_up(
    service: PublisherService,
) -> None:
    async def play(service: PublisherService) -> None:
        await fill(service)
        assert_queue_full(await service.distribute("/p"))
        await service.announce("slow", 1)
        await service.accepted("/p")

    service.run(play)


def test_without_a_live_subscriber_nothing_is_refused(service: PublisherService) -> None:
    async def play(service: PublisherService) -> None:
        for _ in range(5):
            await service.accepted("/p")

    service.run(play)


def test_r5_a_known_key_gets_its_answer_however_full_the_queue_is(
    service: PublisherService,
) -> None:
    async def play(service: PublisherService) -> None:
        key = {"Idempotency-Key": "k"}
        await service.announce("slow", -1)
        first = await service.accepted("/q", headers=key)
        await fill(service, 2)
        await service.until(lambda: _has(service, 3))
        again = await service.accepted("/q", headers=key)
        assert (again["package_id"], again["repeated"]) == (first["package_id"], True)
        other = await service.distribute("/p", headers=key)
        assert other.status_code == 422
        assert_queue_full(await service.distribute("/p", headers={"Idempotency-Key": "new"}))

    service.run(play)


def test_a_batch_at_a_full_queue_has_the_outcomes_of_its_requests_alone(
    service: PublisherService,
) -> None:
    async def play(service: PublisherService) -> None:
        known = {"action": "ADD", "paths": ["/q"], "idempotency_key": "k"}
        await service.announce("slow", -1)
        first = await service.accepted("/q", headers={"Idempotency-Key": "k"})
        await fill(service, 2)
        await service.until(lambda: _has(service, 3))
        requests = [{"action": "ADD", "paths": ["/p"]}, {"action": "TEST"}, known]
        answer = await service.client.post("/distribute/batch", json={"requests": requests})
        outcomes = answer.json()["outcomes"]
        assert [one["status"] for one in outcomes] == [429, 202, 202]
        assert outcomes[2]["accepted"]["id"] == first["id"]

    service.run(play)


def test_looks_at_a_producer_that_is_locked_hold_nothing_else_up(
    service: PublisherService,
) -> None:
    async def play(service: PublisherService) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
        epoch = (await service.client.put("/producers/import")).json()["epoch"]
        await fill(service)
        numbers = [{"name": "import", "epoch": epoch, "sequence": n} for n in range(6)]
        with connect(service.author.database_url, "tests") as holder:
            holder.execute("SELECT FROM bookkeeping.producer FOR UPDATE")
            looks = [service.distribute("/p", producer=number) for number in numbers]
            asked = [asyncio.ensure_future(look) for look in looks]
            await service.until(lambda: _waiting_for_locks(service, 2))
            await asyncio.to_thread(ask, service.watermark._pool)
            await service.get("/distributions")
            assert await _waiting_for_locks(service, 2)
            assert not any(look.done() for look in asked)
            holder.rollback()
        for answer in await asyncio.gather(*asked):
            assert_queue_full(answer)

    service.run(play)


def test_who_waits_too_long_for_a_look_is_asked_to_come_again(
    service: PublisherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(service: PublisherService) -> None:
        await fill(service)
        monkeypatch.setattr(admission, "PATIENCE_S", 0)
        publisher = service.parts.app.state.publisher
        monkeypatch.setattr(publisher.admission, "_places", asyncio.Semaphore(0))
        answer = await service.distribute("/p", headers={"Idempotency-Key": "k"})
        assert (answer.status_code, "publisher is busy" in answer.text) == (503, True)

    service.run(play)


async def _waiting_for_locks(service: PublisherService, number: int) -> bool:
    waiting = (
        "SELECT FROM pg_stat_activity WHERE datname = current_database() "
        "AND wait_event_type = 'Lock'"
    )
    return len(service.author.rows(waiting)) >= number


def test_too_many_requests_at_a_time_are_asked_to_slow_down(
    service: PublisherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(service: PublisherService) -> None:
        monkeypatch.setattr(publish_queue, "_WAITING", 0)
        answer = await service.distribute("/p")
        assert answer.status_code == 429
        assert answer.json()["type"] == "/problems/too-many-waiting"
        assert answer.headers["Retry-After"] == "2"

    service.run(play)


def test_r30_no_more_releases_are_open_than_may_be(
    service: PublisherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MOST_OPEN", 1)

    async def play(service: PublisherService) -> None:
        later = {"at": "2999-01-01T00:00:00Z"}
        first = await service.accepted("/p", **later)
        refused = await service.distribute("/q", **later)
        assert (refused.status_code, refused.json()["type"]) == (429, "/problems/too-many-releases")
        await service.client.delete(f"/releases/{first['id']}")
        await service.accepted("/q", **later)

    service.run(play)
