"""Redistributing what a subscriber gave up on carries what the author has now (R18)."""

from pathlib import Path

import pytest

from packhorse.db.connect import connect
from packhorse.wire.messages import Action, Status
from tests.harness.publisher_service import PublisherService
from tests.harness.publisher_site import Site, publish, until_failed
from tests.harness.publishing import page

REDISTRIBUTE = "/queues/sub1/errors/{}/redistribute"


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


def sent(s: PublisherService) -> list[tuple[Action, tuple[str, ...]]]:
    entries = [placed.message.entry for placed in s.author.journaled()]
    return [(entry.action, (*entry.paths, *entry.deep_paths)) for entry in entries]


@pytest.mark.parametrize("alive", ["/p1", "/p1/below"])
@pytest.mark.parametrize("deep", [False, True])
def test_r18_a_failed_delete_never_removes_what_the_author_has_again(
    site: Site, alive: str, deep: bool
) -> None:
    async def scenario(s: PublisherService) -> None:
        s.author.rows("DELETE FROM content.node WHERE path = '/p1' RETURNING path")
        asked = {"paths": [], "deep_paths": ["/p1"]} if deep else {"paths": ["/p1"]}
        answer = await s.client.post("/distribute", json={"action": "DELETE", **asked})
        assert answer.status_code == 202
        s.status("sub1", 0, Status.REMOVED_FAILED, package_id=answer.json()["id"])
        await s.announce("sub1", 0, max_retries=0)
        await until_failed(s, "sub1", 1)
        s.author.write(page(alive))

        refused = await s.client.post(REDISTRIBUTE.format(0))
        assert (refused.status_code, refused.json()["type"]) == (409, "/problems/path-present")
        assert "POST /distribute" in refused.json()["detail"]
        assert len(sent(s)) == 1
        assert (await until_failed(s, "sub1", 1))["entries"][0]["redistributed_as"] is None

        s.author.rows("DELETE FROM content.node WHERE path LIKE '/p1%%' RETURNING path")
        again = await s.client.post(REDISTRIBUTE.format(0))
        assert again.status_code == 202
        assert sent(s) == [(Action.DELETE, ("/p1",))] * 2

    site.run(scenario)


def test_r18_a_delete_that_is_asked_for_itself_may_name_what_is_there(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.accepted("/p1", action="DELETE")
        assert sent(s) == [(Action.DELETE, ("/p1",))]

    site.run(scenario)


def test_r5_a_published_redistribution_is_accepted_though_it_cannot_be_noted(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        [package_id] = await publish(s, 1)
        s.status("sub1", 0, Status.REMOVED_FAILED, package_id=package_id)
        await s.announce("sub1", 0, max_retries=0)
        await until_failed(s, "sub1", 1)
        with connect(s.author.database_url, "tests", autocommit=True) as connection:
            connection.execute("REVOKE UPDATE ON bookkeeping.outcome FROM packhorse_bookkeeper")
            try:
                answer = await s.client.post(REDISTRIBUTE.format(0))
            finally:
                connection.execute("GRANT UPDATE ON bookkeeping.outcome TO packhorse_bookkeeper")
        assert answer.status_code == 202
        assert len(sent(s)) == 2
        assert (await until_failed(s, "sub1", 1))["entries"][0]["redistributed_as"] is None

    site.run(scenario)
