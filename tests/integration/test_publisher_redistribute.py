"""Redistributing what was given up is a new request, for what the author has now (R18)."""

from pathlib import Path

import pytest

from packhorse.db.connect import connect
from packhorse.wire.messages import Action, Status
from tests.harness.publisher_service import PublisherService, as_, sent
from tests.harness.publisher_site import Site, publish, until_failed
from tests.harness.publishing import page

REDISTRIBUTE = "/queues/sub1/errors/{}/redistribute"


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


@pytest.mark.parametrize("alive", ["/p1", "/p1/below"])
@pytest.mark.parametrize("deep", [False, True])
def test_r18_a_failed_delete_never_removes_what_the_author_has_again(
    site: Site, alive: str, deep: bool
) -> None:
    async def scenario(s: PublisherService) -> None:
        s.author.rows("DELETE FROM content.node WHERE path = '/p1' RETURNING path")
        requested = {"paths": [], "deep_paths": ["/p1"]} if deep else {"paths": ["/p1"]}
        answer = await s.client.post("/distribute", json={"action": "DELETE", **requested})
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


def test_r18_redistributing_is_a_new_request_of_the_same_paths_to_all(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await publish(s, 2)
        for offset in (0, 1):
            s.status("sub1", offset, Status.REMOVED_FAILED, package_id=ids[offset])
        s.status("sub1", 7, Status.REMOVED_FAILED, package_id="nobody-knows")
        await s.announce("sub1", 1, max_retries=0)
        await until_failed(s, "sub1", 3)
        path = "/queues/sub1/errors/1/redistribute"
        headers = {"Idempotency-Key": "again"}
        answers = [await s.client.post(path, headers=headers) for _ in range(2)]
        assert [one.status_code for one in answers] == [202, 202]
        assert answers[0].headers["location"] == f"/distributions/{answers[0].json()['id']}"
        assert [one.json()["repeated"] for one in answers] == [False, True]
        assert {one.json()["id"] for one in answers} == {answers[0].json()["id"]}
        placed = s.author.journaled()
        assert [one.message.entry.paths for one in placed] == [("/p0",), ("/p1",), ("/p1",)]
        shown = {one["offset"]: one for one in (await until_failed(s, "sub1", 3))["entries"]}
        assert shown[1]["redistributed_as"] == placed[-1].message.entry.package_id
        assert shown[0]["redistributed_as"] is None

        refused = await s.client.post(path, headers=as_("editor"))
        assert (refused.status_code, refused.json()["type"]) == (403, "/problems/path-refused")
        forbidden = await s.client.post(path, headers=as_("viewer"))
        assert forbidden.status_code == 403
        for wrong in ("/queues/sub1/errors/2", "/queues/nobody/errors/1"):
            missing = await s.client.post(f"{wrong}/redistribute")
            assert (missing.status_code, missing.json()["type"]) == (
                *(404, "/problems/not-in-error-queue"),
            )
            assert f"GET {wrong.rpartition('/')[0]} lists them" in missing.json()["detail"]
        unknown = await s.client.post("/queues/sub1/errors/7/redistribute")
        assert (unknown.status_code, unknown.json()["type"]) == (409, "/problems/paths-unknown")
        assert "POST /distribute" in unknown.json()["detail"]
        s.author.rows("DELETE FROM content.node WHERE path = '/p0' RETURNING path")
        gone = await s.client.post("/queues/sub1/errors/0/redistribute")
        assert (gone.status_code, gone.json()["type"]) == (404, "/problems/path-missing")
        assert len(s.author.journaled()) == 3

    site.run(scenario)
