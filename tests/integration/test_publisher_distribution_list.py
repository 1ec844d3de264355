"""`GET /distributions`, newest first, and `?wait=` on one of them."""

import asyncio
import threading
from pathlib import Path

import pytest

from packhorse.db.connect import connect
from packhorse.wire.messages import Action, PackageEntry
from packhorse.wire.package_codec import encode_entry
from packhorse_services.publisher.distributions import distribution_list
from packhorse_services.publisher.outbox import outbox_rows
from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import AGENT, page, publish, request
from tests.harness.waiting import eventually

PATHS = ("/site", "/site/a", "/sites", "/other")


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> PublisherService:
    service = PublisherService(database_url, tmp_path)
    service.author.write(*map(page, PATHS))
    return service


async def listed(s: PublisherService, query: str = "") -> list[str]:
    """Return the ids of all pages."""
    ids: list[str] = []
    url: str | None = f"/distributions?limit=2{query}"
    while url:
        answer = await s.client.get(url)
        document = answer.json()
        assert answer.status_code == 200, document
        url = document["next"]
        assert answer.headers.get("link") == (f'<{url}>; rel="next"' if url else None)
        assert len(document["distributions"]) <= 2
        ids += [one["id"] for one in document["distributions"]]
    return ids


def test_distributions_are_listed_newest_first_and_filtered(service: PublisherService) -> None:
    other = service.author.replica(agent="bulk")

    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1)
        ids = [(await s.accepted(path))["id"] for path in PATHS]
        ids.append((await s.accepted(action="DELETE", deep_paths=["/site/a/b"]))["id"])
        await asyncio.to_thread(publish, other, request("/site"))
        assert await listed(s) == ids[::-1]
        assert await listed(s, "&path_prefix=/site") == [ids[4], ids[1], ids[0]]
        assert await listed(s, "&path_prefix=/") == ids[::-1]
        assert await listed(s, "&node=/site/a/b/c") == [ids[4]], "only its subtree has it"
        assert await listed(s, "&node=/site") == [ids[0]]
        assert await listed(s, "&action=DELETE") == [ids[4]]
        assert await listed(s, "&action=TEST") == []
        assert await listed(s, "&user=admin") == ids[::-1]
        assert await listed(s, "&user=somebody") == []
        await s.announce("sub1", 2, settled_offset=2)

        async def reported() -> bool:
            return await listed(s, "&state=DISTRIBUTED") == ids[2::-1]

        await s.until(reported)
        assert await listed(s, "&state=QUEUED") == [ids[4], ids[3]]
        [newest] = (await s.get("/distributions?limit=1"))["distributions"]
        assert (newest["action"], newest["deep_paths"]) == ("DELETE", ["/site/a/b"])
        assert newest["links"]["self"] == f"/distributions/{ids[4]}"

    service.run(scenario)


def test_r30_one_request_looks_at_so_many_and_no_more(
    service: PublisherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution_list, "_CHUNK", 2)
    monkeypatch.setattr(distribution_list, "_SCANNED", 2)

    async def scenario(s: PublisherService) -> None:
        ids = [(await s.accepted(path))["id"] for path in PATHS]
        first = await s.get("/distributions?path_prefix=/site")
        assert (first["distributions"], bool(first["next"])) == ([], True)
        assert await listed(s, "&path_prefix=/site") == [ids[1], ids[0]]
        assert await listed(s) == ids[::-1]

    service.run(scenario)


LARGE = 300


def write_large(database_url: str) -> None:
    """Let 14 MB of packages with a thousand paths each have been distributed."""
    paths = tuple(f"/content/site/long/path/to/page{number:06}/content" for number in range(1_000))
    with connect(database_url, "tests") as connection:
        for number in range(LARGE):
            entry = PackageEntry(f"large-{number}", AGENT, Action.ADD, paths, user="u")
            connection.execute(
                "INSERT INTO bookkeeping.outbox (epoch, sequence, snapshot, package_id, entry, "
                "log_offset, generation) SELECT 1, %s, 1, %s, %s, %s, generation "
                "FROM bookkeeping.slot",
                (number, entry.package_id, encode_entry(entry), number),
            )


def test_r30_pages_are_bounded_by_bytes_and_nothing_is_left_out(
    service: PublisherService, database_url: str
) -> None:
    async def scenario(s: PublisherService) -> None:
        adopted = "SELECT FROM bookkeeping.slot WHERE journal_id <> ''"
        await asyncio.to_thread(eventually, lambda: bool(s.author.rows(adopted)))
        await asyncio.to_thread(write_large, database_url)
        ids: list[str] = []
        url: str | None = "/distributions?limit=1000"
        while url:
            answer = await s.client.get(url)
            assert len(answer.content) < 3 * 1024 * 1024
            document = answer.json()
            url = document["next"]
            ids += [one["id"] for one in document["distributions"]]
        assert ids == [f"large-{number}" for number in reversed(range(LARGE))]
        nowhere = await s.get("/distributions?path_prefix=/nowhere")
        assert nowhere["distributions"] == []
        assert nowhere["next"], "14 MB are more than one request looks at"

    service.run(scenario)


def test_a_package_that_is_larger_than_a_page_has_one_to_itself(
    service: PublisherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("_CHUNK_BYTES", "_SCANNED_BYTES", "_FOUND_BYTES"):
        monkeypatch.setattr(distribution_list, bound, 1)

    async def scenario(s: PublisherService) -> None:
        ids = [(await s.accepted(path))["id"] for path in PATHS]
        assert await listed(s) == ids[::-1]
        assert await listed(s, "&path_prefix=/site") == [ids[1], ids[0]]

    service.run(scenario)


def test_the_event_loop_decodes_no_package(
    service: PublisherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, threads = outbox_rows.entry_of, set[int]()

    def noted(row: bytes) -> PackageEntry:
        threads.add(threading.get_ident())
        return decode(row)

    async def scenario(s: PublisherService) -> None:
        await s.accepted("/site")
        monkeypatch.setattr(outbox_rows, "entry_of", noted)
        await listed(s)
        assert threads
        assert threading.get_ident() not in threads

    service.run(scenario)


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=1001", "cursor=!!", "cursor=eA", "path_prefix=relative"),
        *("path_prefix=/a//b", "action=ad", "state=DONE", "cursor=" + "x" * 200),
    ],
)
def test_what_is_no_list_of_ours_is_refused(service: PublisherService, query: str) -> None:
    async def scenario(s: PublisherService) -> None:
        assert (await s.client.get(f"/distributions?{query}")).status_code == 422

    service.run(scenario)


def test_a_distribution_is_waited_for(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1)
        accepted = await s.accepted("/site")
        url = f"/distributions/{accepted['id']}"
        assert (await s.get(f"{url}?wait=1"))["state"] == "QUEUED"
        waiting = asyncio.create_task(s.get(f"{url}?wait=60"))
        await asyncio.sleep(0)
        await s.announce("sub1", 0, settled_offset=0)
        document = await waiting
        assert document["state"] == "DISTRIBUTED"
        assert [one["state"] for one in document["subscribers"]] == ["IMPORTED"]
        for wrong in ("-1", "61", "x"):
            assert (await s.client.get(f"{url}?wait={wrong}")).status_code == 422
        assert (await s.client.get("/distributions/none?wait=60")).status_code == 404

    service.run(scenario)


def test_waiting_ends_when_the_journal_has_not_even_taken_it(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        s.journal.away = True
        accepted = await s.accepted("/site")
        assert accepted["state"] == "ACCEPTED"
        url = f"/distributions/{accepted['id']}"
        waiting = asyncio.create_task(s.get(f"{url}?wait=60"))
        await asyncio.sleep(0)
        s.journal.away = False
        await s.announce("sub1", 0, settled_offset=0)
        assert (await waiting)["state"] in ("DISTRIBUTED", "QUEUED")

    service.run(scenario)
