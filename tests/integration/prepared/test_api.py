"""`POST /packages`: what it takes, answers and refuses."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse_services.publisher.outbox.request import PreparedBody
from tests.harness.prepared import document, prepare
from tests.harness.publisher_service import PublisherService, as_, kind
from tests.harness.publishing import page

DEEP = "/content/site/huge"
PAGES = [f"{DEEP}/{name}" for name in "abc"]


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> PublisherService:
    service = PublisherService(database_url, tmp_path)
    service.author.write(page(DEEP), *map(page, PAGES))
    return service


async def register(service: PublisherService, token: str = "admin") -> int:
    answer = await service.client.put("/producers/bulk", headers=as_(token))
    assert answer.status_code == 200, answer.text
    return int(answer.json()["epoch"])


async def send(
    service: PublisherService,
    body: PreparedBody,
    epoch: int,
    sequence: int = 0,
    token: str = "admin",
    **more: Any,
) -> httpx.Response:
    requested = document(body, DEEP, epoch, sequence, **more)
    return await service.client.post("/packages", json=requested, headers=as_(token))


def test_a_part_is_accepted_shown_and_sent_once(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        await service.announce("sub1", -1)
        epoch = await register(service)
        body = prepare(service.author, DEEP, PAGES[1], PAGES[2])
        first = await send(service, body, epoch)
        assert first.status_code == 202, first.text
        assert first.headers["location"] == f"/distributions/{body.package_id}"
        assert not first.json()["repeated"]
        again = (await send(service, body, epoch)).json()
        assert again == {**first.json(), "repeated": True}
        shown = await service.get(first.headers["location"])
        assert (shown["range_from"], shown["range_to"]) == (PAGES[1], PAGES[2])
        assert (shown["size"], shown["nodes"]) == (body.length, 1)
        [listed] = (await service.get("/distributions"))["distributions"]
        assert (listed["range_from"], listed["range_to"]) == (PAGES[1], PAGES[2])

        async def queued() -> bool:
            entries = (await service.get("/queues/sub1"))["entries"]
            return [(one["range_from"], one["range_to"]) for one in entries] == [
                (PAGES[1], PAGES[2])
            ]

        await service.until(queued)
        await service.announce("sub1", 0)
        done = await service.get(f"/distributions/{body.package_id}")
        assert done["state"] == "DISTRIBUTED"

    service.run(scenario)
    assert len(service.author.journaled()) == 1


def test_r6_a_stale_part_is_refused_and_its_sequence_is_free(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        epoch = await register(service)
        body = prepare(service.author, DEEP)
        await service.accepted(PAGES[0])
        answer = await send(service, body, epoch)
        assert kind(answer) == (409, "stale-package")
        assert "export it again" in answer.json()["detail"]
        assert (await service.get("/producers/bulk"))["last_sequence"] is None
        assert (await send(service, prepare(service.author, DEEP), epoch)).status_code == 202
        metrics = (await service.client.get("/metrics")).text
        assert 'packhorse_publisher_requests_total{agent="main",state="stale"}' in metrics

    service.run(scenario)


def test_a_body_that_is_not_what_the_request_says_is_refused(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        epoch = await register(service)
        body = prepare(service.author, DEEP)
        missing = replace(body, package_id="dstrpck-1-0123456789abcdef")
        assert kind(await send(service, missing, epoch)) == (404, "stored-package-missing")
        shorter = replace(body, length=body.length - 1)
        assert kind(await send(service, shorter, epoch)) == (422, "stored-package-differs")
        assert kind(await send(service, body, epoch + 1)) == (409, "producer-unknown")
        assert (await send(service, body, epoch)).status_code == 202
        assert kind(await send(service, body, epoch, 1)) == (409, "package-id-used")

    service.run(scenario)


def test_r5_a_repeat_is_answered_also_when_its_body_is_gone(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        epoch = await register(service)
        body = prepare(service.author, DEEP)
        first = await send(service, body, epoch)
        service.author.blobs.delete(body.key)
        again = await send(service, body, epoch)
        assert again.status_code == 202, again.text
        assert again.json() == {**first.json(), "repeated": True}
        assert kind(await send(service, body, epoch, 1)) == (404, "stored-package-missing")

    service.run(scenario)


def test_r21_a_body_that_the_cleanup_may_take_soon_counts_as_missing(
    service: PublisherService, tmp_path: Path
) -> None:
    def make_older(body: PreparedBody, hours: float) -> None:
        old_s = time.time() - hours * 3600
        os.utime(tmp_path / "blobs" / body.key, (old_s, old_s))

    async def scenario(service: PublisherService) -> None:
        epoch = await register(service)
        body = prepare(service.author, DEEP)
        make_older(body, 12.5)
        answer = await send(service, body, epoch)
        assert kind(answer) == (404, "stored-package-missing")
        assert "export it again" in answer.json()["detail"]
        make_older(body, 11.5)
        assert (await send(service, body, epoch)).status_code == 202

    service.run(scenario)


def test_a_caller_sends_below_its_roots_alone(service: PublisherService) -> None:
    async def scenario(service: PublisherService) -> None:
        epoch = await register(service, "editor")
        body = prepare(service.author, DEEP)
        refused = await send(service, body, epoch, token="editor", deep_path="/content")
        assert kind(refused) == (403, "forbidden")
        assert refused.json()["errors"][0]["pointer"] == "#/deep_path"
        assert kind(await send(service, body, epoch, token="viewer")) == (403, "forbidden")
        assert (await send(service, body, epoch, token="editor")).status_code == 202

    service.run(scenario)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"range_from": "/content/site/huge-2"}, "outside"),
        ({"range_from": PAGES[1], "range_to": PAGES[1]}, "ends at"),
        ({"range_to": DEEP}, "ends at"),
        ({"range_to": f"{DEEP}/"}, "segment"),
        ({"deep_path": "huge"}, "absolute"),
        ({"node_count": 0}, "holds a node"),
        ({"body_length": 0}, "greater"),
        ({"package_id": "../../secret"}, "pattern"),
        ({"body_sha256": "AB" * 32}, "pattern"),
        ({"producer": None}, "valid"),
        ({"paths": ["/x"]}, "not known here"),
    ],
)
def test_what_is_no_part_is_refused_with_the_reason(
    service: PublisherService, wrong: dict[str, Any], reason: str
) -> None:
    async def scenario(service: PublisherService) -> None:
        body = PreparedBody("dstrpck-1-0123456789abcdef", "ab" * 32, 9, 9, 1, (1, 0))
        answer = await send(service, body, 1, **wrong)
        assert kind(answer) == (422, "invalid-request")
        assert reason in answer.text

    service.run(scenario)
