"""The error queue outlives publishers, topics and the log, as long as promised (R18)."""

from pathlib import Path

import pytest

from packhorse.messaging.open import open_journal
from packhorse.wire.messages import Status
from tests.harness.publisher_service import PublisherService
from tests.harness.publisher_site import Site, publish, states, until_failed
from tests.harness.publishing import TOPICS
from tests.harness.tidying import tidy


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


def test_r18_the_error_queue_outlives_publisher_status_topic_and_log(site: Site) -> None:
    ids: list[str] = []

    async def fail(s: PublisherService) -> None:
        ids.extend(await publish(s))
        failure = {"package_id": ids[1], "attempts": 4, "reason": "no", "decided_ms": 10**12}
        s.status("sub1", 1, Status.REMOVED_FAILED, **failure)
        await s.announce("sub1", 4, max_retries=3)
        await until_failed(s, "sub1", 1)

    async def look(s: PublisherService) -> None:
        [entry] = (await s.get("/queues/sub1/errors"))["entries"]
        assert entry == {
            "package_id": ids[1],
            "offset": 1,
            "action": "ADD",
            "paths": ["/p1"],
            "deep_paths": [],
            "user": "admin",
            "attempts": 4,
            "reason": "no",
            "time": "2001-09-09T01:46:40Z",
            "redistributed_as": None,
        }

    async def look_at_all(s: PublisherService) -> None:
        await look(s)
        [queue] = (await s.get("/queues"))["queues"]
        assert (queue["subscriber"], queue["errors"]) == ("sub1", 1)
        assert await states(s, ids[1]) == {"sub1": "REMOVED_FAILED"}
        assert await states(s, ids[0]) == {"sub1": "IMPORTED"}

    async def cut(s: PublisherService) -> None:
        await look_at_all(s)
        s.journal.truncate(TOPICS.package, 5)

    site.run(fail)
    site.run(look_at_all)
    site.recreate(TOPICS.status)
    site.run(cut)
    site.run(look)


def test_r18_a_failure_of_an_older_log_never_colours_a_new_package(site: Site) -> None:
    old: list[str] = []

    async def fail(s: PublisherService) -> None:
        old.extend(await publish(s, 2))
        journal_id = s.journal.identity(TOPICS.package)
        s.status("sub1", 1, Status.REMOVED_FAILED, package_id=old[1], reason="old")
        await s.announce("sub1", 1, journal_id=journal_id)
        await until_failed(s, "sub1", 1)

    async def go_on(s: PublisherService) -> None:
        new = await publish(s, 2)
        journal_id = s.journal.identity(TOPICS.package)
        await s.announce("sub1", 1, journal_id=journal_id)
        assert await states(s, new[1]) == {"sub1": "IMPORTED"}
        s.status("sub1", 1, Status.REMOVED_FAILED, package_id=new[1], reason="new")
        found = await until_failed(s, "sub1", 2)
        assert [one["package_id"] for one in found["entries"]] == [old[1], new[1]]
        first = await s.get("/queues/sub1/errors?limit=1")
        second = await s.get(first["next"])
        shown = first["entries"] + second["entries"]
        assert [one["reason"] for one in shown] == ["old", "new"]
        assert second["next"] is None
        again = await s.client.post("/queues/sub1/errors/1/redistribute")
        assert again.status_code == 202
        entries = (await s.get("/queues/sub1/errors"))["entries"]
        assert [one["redistributed_as"] for one in entries] == [None, again.json()["id"]]

    site.run(fail)
    site.recreate(TOPICS.package)
    site.run(go_on)


def test_r18_no_entry_is_chosen_by_its_offset_while_the_log_is_not_known(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(s: PublisherService) -> None:
        await publish(s, 1)
        s.status("sub1", 0, Status.REMOVED_FAILED, reason="no")
        await s.announce("sub1", 0)
        await until_failed(s, "sub1", 1)
        feed = s.parts.app.state.publisher.queues.feed
        monkeypatch.setattr(feed, "_journal", open_journal("memory://none", client_name="tests"))
        feed.identity = ""  # as it is until the journal was first read
        errors = "/queues/sub1/errors"
        for answer in (
            await s.client.post(f"{errors}/0/redistribute"),
            await s.client.post(f"{errors}/redistribute", json={"offsets": [0]}),
            await s.client.post(f"{errors}/dismiss", json={"offsets": [0]}),
            await s.client.delete(f"{errors}/0"),
        ):
            assert answer.status_code == 503
            assert "journal was not read yet" in answer.json()["detail"]
        assert (await s.get(errors))["length"] == 1
        named = await s.client.post(f"{errors}/dismiss", json={"reason": "no"})
        assert named.json()["offsets"] == [0]

    site.run(scenario)


def test_r18_housekeeping_keeps_failures_longer_than_the_log(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await publish(s)
        for offset, status in (
            (0, Status.REMOVED),
            (1, Status.REMOVED_FAILED),
            (2, Status.SKIPPED),
        ):
            s.status("sub1", offset, status, package_id=ids[offset])
        s.status("sub1", 4, Status.REMOVED, package_id=ids[4])
        await s.announce("sub1", 4)
        await until_failed(s, "sub1", 1)
        tidy(s.author, keep_failed_days=1 / 24)
        query = "SELECT log_offset FROM bookkeeping.outcome ORDER BY 1"
        assert s.author.rows(query) == [(0,), (1,), (2,), (4,)]
        s.journal.truncate(TOPICS.package, 4)
        tidy(s.author, keep_failed_days=1 / 24)
        assert s.author.rows(query) == [(1,), (4,)]
        s.author.rows(
            "UPDATE bookkeeping.outcome SET recorded_at = now() - interval '2 h' RETURNING 1"
        )
        tidy(s.author, keep_failed_days=1 / 24)
        assert s.author.rows(query) == [(4,)]

    site.run(scenario)
