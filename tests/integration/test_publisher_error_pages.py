"""Pages of an error queue are bounded, whatever is in it (R18, R30)."""

import asyncio
import threading
from pathlib import Path

import pytest

from packhorse.db.connect import connect
from packhorse.wire.messages import Action, PackageEntry
from packhorse.wire.package_codec import encode_entry
from packhorse_services.publisher.http import error_routes
from packhorse_services.publisher.outcomes import error_queue
from packhorse_services.publisher.outcomes.error_queue import FailedPackage
from tests.harness.publisher_service import PublisherService
from tests.harness.publisher_site import Site
from tests.harness.publishing import AGENT

FAILED = 150
PATHS = tuple(f"/content/site/long/path/to/page{number:06}/content" for number in range(1_000))


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


def write_failed(database_url: str, paths: tuple[str, ...], count: int = FAILED) -> None:
    """Let a subscriber have given up on packages, all recorded at the same time."""
    entry = encode_entry(PackageEntry("large", AGENT, Action.ADD, paths, user="u"))
    with connect(database_url, "tests") as connection:
        connection.execute(
            "INSERT INTO bookkeeping.outcome (agent, subscriber, journal_id, log_offset, "
            "package_id, status, attempts, reason, command_id, decided_at, entry) "
            "SELECT %s, 'sub1', 'log', number, 'large-' || number, 'REMOVED_FAILED', 1, 'no', "
            "'', now(), %s FROM generate_series(1, %s) AS number",
            (AGENT, entry, count),
        )


async def read_all(s: PublisherService, url: str | None, most: int) -> tuple[int, list[int]]:
    """Return how many pages there are, and all offsets; no page has more than `most` bytes."""
    pages, offsets = 0, list[int]()
    while url:
        answer = await s.client.get(url)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) <= most
        document = answer.json()
        url = document["next"]
        assert answer.headers.get("link") == (f'<{url}>; rel="next"' if url else None)
        pages, offsets = pages + 1, offsets + [one["offset"] for one in document["entries"]]
    return pages, offsets


def test_r30_pages_are_bounded_by_bytes_and_nothing_is_left_out(
    site: Site, database_url: str
) -> None:
    async def scenario(s: PublisherService) -> None:
        await asyncio.to_thread(write_failed, database_url, PATHS)
        url = "/queues/sub1/errors?limit=1000"
        pages, offsets = await read_all(s, url, 3 * 1024 * 1024)
        assert offsets == list(range(1, FAILED + 1))
        assert pages == 4, "7 MB, two a page"

    site.run(scenario)


def test_r30_one_offset_of_two_logs_that_was_recorded_together_has_a_page_each(
    site: Site, database_url: str
) -> None:
    def write() -> None:
        write_failed(database_url, PATHS[:1], 2)
        with connect(database_url, "tests") as connection:
            connection.execute(
                "UPDATE bookkeeping.outcome SET journal_id = 'log.' || log_offset, log_offset = 7"
            )

    async def scenario(s: PublisherService) -> None:
        await asyncio.to_thread(write)
        assert await read_all(s, "/queues/sub1/errors?limit=1", 10_000) == (2, [7, 7])

    site.run(scenario)


def test_an_entry_that_is_larger_than_a_page_has_one_to_itself(
    site: Site, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_queue, "_PAGE_BYTES", 1)

    async def scenario(s: PublisherService) -> None:
        await asyncio.to_thread(write_failed, database_url, ("/p",), 3)
        assert await read_all(s, "/queues/sub1/errors", 10_000) == (3, [1, 2, 3])

    site.run(scenario)


@pytest.mark.parametrize("entry", [None, b"\xff"])
def test_r30_packages_that_are_not_known_are_paged_by_their_reasons(
    site: Site, database_url: str, monkeypatch: pytest.MonkeyPatch, entry: bytes | None
) -> None:
    monkeypatch.setattr(error_queue, "_PAGE_BYTES", 3)  # the reason and a byte

    def write() -> None:
        write_failed(database_url, ("/p",), 3)
        with connect(database_url, "tests") as connection:
            connection.execute("UPDATE bookkeeping.outcome SET entry = %s", (entry,))

    async def scenario(s: PublisherService) -> None:
        await asyncio.to_thread(write)
        assert await read_all(s, "/queues/sub1/errors", 10_000) == (3, [1, 2, 3])

    site.run(scenario)


def test_the_limit_holds_when_entries_are_small(site: Site, database_url: str) -> None:
    async def scenario(s: PublisherService) -> None:
        await asyncio.to_thread(write_failed, database_url, ("/p",), 6)
        assert await read_all(s, "/queues/sub1/errors?limit=2", 10_000) == (3, [*range(1, 7)])
        assert await read_all(s, "/queues/sub1/errors?limit=6", 10_000) == (1, [*range(1, 7)])

    site.run(scenario)


def test_the_event_loop_decodes_no_package(
    site: Site, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    show, threads = error_routes._failed, set[int]()

    def noted(failed: FailedPackage) -> error_routes.FailedDocument:
        threads.add(threading.get_ident())
        return show(failed)

    monkeypatch.setattr(error_routes, "_failed", noted)

    async def scenario(s: PublisherService) -> None:
        await asyncio.to_thread(write_failed, database_url, ("/p",), 1)
        await s.get("/queues/sub1/errors")
        assert threads
        assert threading.get_ident() not in threads

    site.run(scenario)
