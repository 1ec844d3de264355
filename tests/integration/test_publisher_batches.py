"""Many requests in one call: an outcome for each, in order, each package once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from packhorse_services.publisher.http import batch_routes
from tests.harness.publisher_service import PublisherService, as_
from tests.harness.publishing import page


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> PublisherService:
    service = PublisherService(database_url, tmp_path, producers=20)
    service.author.write(page("/content/site/a"), page("/b"))
    return service


def line(epoch: int, sequence: int, path: str = "/b") -> dict[str, Any]:
    number = {"name": "import", "epoch": epoch, "sequence": sequence}
    return {"action": "add", "paths": [path], "producer": number}


async def send(
    service: PublisherService, *requests: Any, token: str = "admin"
) -> list[tuple[int, str]]:
    """Return each outcome's status, and what it was refused for."""
    body = {"requests": list(requests)}
    answer = await service.client.post("/distribute/batch", json=body, headers=as_(token))
    assert answer.status_code == 200, answer.text
    outcomes = answer.json()["outcomes"]
    for one in outcomes:
        assert (one["accepted"] is None) is (one["problem"] is not None)
    return [(one["status"], _kind(one["problem"])) for one in outcomes]


def _kind(problem: dict[str, Any] | None) -> str:
    return "" if problem is None else str(problem["type"]).rpartition("/")[2]


async def epoch_of(service: PublisherService) -> int:
    return int((await service.client.put("/producers/import")).json()["epoch"])


def test_r5_each_request_of_a_batch_has_its_outcome(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        keyed = {"action": "DELETE", "paths": ["/b"], "idempotency_key": "k"}
        requests = [
            {"action": "Add", "paths": ["/b"]},
            {"action": "ADD", "paths": ["/nowhere"]},
            keyed,
            {"action": "ADD", "paths": ["relative"]},
            {"action": "ADD", "paths": ["/\x00"]},
            "nothing of the kind",
            {"action": "TEST"},
        ]
        outcomes = [
            (202, ""),
            (404, "not-found"),
            (202, ""),
            *[(422, "invalid-request")] * 3,
            (202, ""),
        ]
        assert await send(service, *requests) == outcomes
        first, second = await send(service, keyed, {**keyed, "paths": ["/c"]})
        assert first == (202, "")
        known = second == (422, "key-reused")  # where the first one has been published meanwhile
        assert known or second == (409, "key-in-progress")
        assert await send(service, {**keyed, "paths": ["/c"]}) == [(422, "key-reused")]
        refused = await send(service, requests[0], {"action": "TEST"}, token="editor")
        assert refused == [(403, "forbidden"), (202, "")]

    service.run(scenario)
    assert len(service.author.journaled()) == 4


@pytest.mark.parametrize("fault", ["/nowhere", "relative"])
def test_r5_behind_a_refused_request_of_a_producer_nothing_is_published(
    service: PublisherService, fault: str
) -> None:
    async def scenario(service: PublisherService) -> None:
        epoch = await epoch_of(service)
        refused = (404, "not-found") if fault == "/nowhere" else (422, "invalid-request")
        lines = [line(epoch, n, fault if n == 3 else "/b") for n in range(1, 200)]
        first = await send(service, *lines, {"action": "TEST"})
        assert first[:3] == [(202, ""), (202, ""), refused]
        assert set(first[3:-1]) == {(503, "earlier-refused")}
        assert first[-1] == (202, "")
        assert (await service.get("/producers/import"))["last_sequence"] == 2
        assert set(await send(service, *lines[3:])) == {(202, "")}
        again = await send(service, *lines[:2], *lines[3:])
        assert set(again) == {(202, "")}

    service.run(scenario)
    assert len(service.author.journaled()) == 199


def test_r5_a_source_passes_over_what_was_refused_for_good(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        epoch = await epoch_of(service)

        async def pass_over(epoch: int, sequence: int) -> tuple[int, Any]:
            body = {"epoch": epoch, "last_sequence": sequence}
            answer = await service.client.patch("/producers/import", json=body)
            return answer.status_code, answer.json()

        assert await send(service, line(epoch, 5)) == [(202, "")]
        status, shown = await pass_over(epoch, 7)
        assert (status, shown["last_sequence"]) == (200, 7)
        assert (await pass_over(epoch, 6))[1]["last_sequence"] == 7
        assert await send(service, line(epoch, 7), line(epoch, 8)) == [
            (410, "sequence-passed"),
            (202, ""),
        ]
        status, problem = await pass_over(epoch + 1, 20)
        assert (status, _kind(problem)) == (409, "producer-fenced")
        assert "PUT /producers/import makes it yours" in problem["detail"]
        answer = await service.client.patch(
            "/producers/other", json={"epoch": 1, "last_sequence": 1}
        )
        assert answer.status_code == 404

    service.run(scenario)
    assert len(service.author.journaled()) == 2


def test_a_batch_is_bounded(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        for requests in ([], [{"action": "TEST"}] * 501, [{"paths": ["/b"] * 900}] * 30):
            answer = await service.client.post("/distribute/batch", json={"requests": requests})
            assert answer.status_code == 422, answer.text

    service.run(scenario)
    assert not service.author.journaled()


def test_r33_batches_of_one_caller_leave_the_line_to_others(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        batch = {"requests": [{"action": "TEST"}] * 500}

        async def status(token: str, path: str, body: Any) -> int:
            answer = await service.client.post(path, json=body, headers=as_(token))
            return answer.status_code

        service.journal.may_append.clear()
        try:
            sent = asyncio.create_task(status("editor", "/distribute/batch", batch))
            assert await asyncio.to_thread(service.journal.requested.wait, 60)
            refused = await asyncio.gather(
                *(status("editor", "/distribute/batch", batch) for _ in range(5))
            )
            assert refused == [429] * 5
            other = asyncio.create_task(status("admin", "/distribute", {"action": "TEST"}))
        finally:
            service.journal.may_append.set()
        assert (await sent, await other) == (200, 202)
        assert await status("editor", "/distribute/batch", batch) == 200

    service.run(scenario)


def test_a_fault_of_ours_in_a_batch_is_logged(
    service: PublisherService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a fault of ours")

    async def scenario(service: PublisherService) -> None:
        monkeypatch.setattr(batch_routes, "requested_of", fail)
        assert await send(service, {"action": "TEST"}) == [(500, "internal")]

    service.run(scenario)
    assert "a fault of ours" in caplog.text
