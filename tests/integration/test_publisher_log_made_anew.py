"""R26: the package topic is made anew, under a publisher that runs or between two runs."""

from pathlib import Path

import pytest

from packhorse.db.connect import connect
from packhorse_services.publisher.outbox import outbox_rows
from tests.harness.publisher_service import PublisherService
from tests.harness.publisher_site import Site, publish
from tests.harness.publishing import TOPICS
from tests.harness.waiting import eventually


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


def forget(s: PublisherService) -> int:
    with connect(s.author.database_url, "tests") as connection:
        identity = s.journal.identity(TOPICS.package)
        oldest = s.journal.bounds(TOPICS.package).oldest
        return outbox_rows.forget_below(connection, identity, oldest, 100)


async def statuses(s: PublisherService, ids: list[str]) -> list[int]:
    return [(await s.client.get(f"/distributions/{one}")).status_code for one in ids]


@pytest.mark.parametrize("before", [1, 3])
def test_r26_a_running_publisher_marks_packages_with_the_log_that_they_are_in(
    site: Site, before: int
) -> None:
    ids: list[str] = []

    async def run(s: PublisherService) -> None:
        await publish(s, before)
        site.recreate(TOPICS.package)
        ids.extend(await publish(s, 3))
        [[known, generation]] = s.author.rows("SELECT journal_id, generation FROM bookkeeping.slot")
        assert known == s.journal.identity(TOPICS.package)
        rows = s.author.rows(
            "SELECT generation, log_offset FROM bookkeeping.outbox ORDER BY sequence"
        )
        assert rows[before:] == [(generation, offset) for offset in range(3)]

    async def later(s: PublisherService) -> None:
        await s.accepted("/p1")
        assert forget(s) == before
        assert await statuses(s, ids) == [200, 200, 200]

    site.run(run)
    site.run(later)


def test_r26_an_idle_publisher_notices_that_the_log_is_another(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhorse_services.publisher.publish.publish_queue._IDLE_S", 0.05)

    async def run(s: PublisherService) -> None:
        ids = await publish(s, 2)
        site.recreate(TOPICS.package)
        identity = s.journal.identity(TOPICS.package)
        query = "SELECT journal_id FROM bookkeeping.slot"
        eventually(lambda: s.author.rows(query) == [(identity,)])
        assert await statuses(s, ids) == [404, 404]

    site.run(run)


def test_what_only_an_earlier_log_had_is_forgotten_and_not_judged_by_the_new_one(
    site: Site,
) -> None:
    old: list[str] = []

    async def first(s: PublisherService) -> None:
        old.extend(await publish(s, 2))

    async def second(s: PublisherService) -> None:
        new = await publish(s, 2)
        journal_id = s.journal.identity(TOPICS.package)
        await s.announce("sub1", 1, journal_id=journal_id)
        assert await statuses(s, [*old, *new]) == [404, 404, 200, 200]
        listed = (await s.get("/distributions"))["distributions"]
        assert [one["id"] for one in listed] == new[::-1]

    site.run(first)
    site.recreate(TOPICS.package)
    site.run(second)
