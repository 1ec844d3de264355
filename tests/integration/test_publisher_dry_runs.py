"""Dry runs read as much as an export, and take nothing from the rest of the publisher."""

import asyncio
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from packhorse.content.node import Node
from packhorse_services.publisher.publish import dry_run
from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import page


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> PublisherService:
    service = PublisherService(database_url, tmp_path)
    service.author.write(page("/p0"))
    return service


class HeldExports:
    """Dry runs that stay in the middle of their exports until they may end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Semaphore(0), threading.Event()
        self._compress = dry_run.compress_stream
        monkeypatch.setattr(dry_run, "compress_stream", self._held)

    def _held(self, content: Iterable[bytes]) -> Iterator[bytes]:
        self.begun.release()
        assert self.may_end.wait(300)
        yield from self._compress(content)


def test_dry_runs_take_no_connection_from_readiness_and_the_outbox(
    service: PublisherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports = HeldExports(monkeypatch)

    async def scenario(s: PublisherService) -> None:
        runs = [asyncio.create_task(s.dry_run("/p0")) for _ in range(2)]
        for _ in runs:
            assert await asyncio.to_thread(exports.begun.acquire, timeout=120)
        try:
            # A pool's own patience, 10 s, is shorter than the dry runs are held.
            await s.until_ready()
            await s.announce("sub1", -1)
            await s.accepted("/p0")
            refused = await s.dry_run("/p0")
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "5"
            assert refused.json()["type"].endswith("too-many-dry-runs")
        finally:
            exports.may_end.set()
        assert [(await run).status_code for run in runs] == [200, 200]
        assert (await s.dry_run("/p0")).status_code == 200
        assert (await s.dry_run("/gone")).status_code == 404
        assert (await s.dry_run("/gone")).status_code == 404
        assert (await s.dry_run("/p0")).status_code == 200

    service.run(scenario)


def test_a_dry_run_refuses_what_is_too_large_to_be_published(
    database_url: str, tmp_path: Path
) -> None:
    service = PublisherService(database_url, tmp_path, max_package_bytes=1024**2)
    pages = [Node(f"/large/p{n}", "page", f'{{"text": "{"x" * 400_000}"}}') for n in range(3)]
    service.author.write(page("/large"), *pages)

    async def scenario(s: PublisherService) -> None:
        refusals = [
            await ask("/large/p0", deep_paths=["/large"]) for ask in (s.dry_run, s.distribute)
        ]
        dry, published = [(one.status_code, one.json()["detail"]) for one in refusals]
        assert dry == published
        assert "PACKHORSE_MAX_PACKAGE_BYTES" in dry[1]

    service.run(scenario)
