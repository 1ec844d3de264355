"""Releases over HTTP: asked for now, shown, changed and cancelled, sent once at their moment."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse.jobs.consumers import Consumers
from packhorse.jobs.declaring import Declared
from packhorse.jobs.host import open_jobs
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.wire.messages import Action
from packhorse_services.publisher.releases.planning import topic_of
from packhorse_services.publisher.releases.sending import QUEUE, ReleaseSender
from tests.harness.publisher_service import PublisherService, as_, sent
from tests.harness.publisher_site import Site
from tests.harness.publishing import AGENT, page
from tests.harness.waiting import eventually

LATER, PAST = "2999-01-01T00:00:00Z", "2001-01-01T00:00:00+01:00"


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


@contextmanager
def sending(s: PublisherService) -> Iterator[None]:
    """Do the jobs of releases meanwhile, as a publisher in a cluster does."""
    publisher = s.parts.app.state.publisher
    consumers = Consumers()
    sender = ReleaseSender(publisher.releases, publisher.intake.submit, publisher.admission.check)
    consumers.add(topic_of(AGENT), sender)
    url = s.author.database_url
    with Lifecycle([open_jobs(url, None, consumers=consumers, declared=Declared([QUEUE]))]):
        yield


async def planned(s: PublisherService, *paths: str, **body: Any) -> dict[str, Any]:
    return await s.accepted(*paths, **{"at": LATER, **body})


async def change(s: PublisherService, named: str, **body: Any) -> httpx.Response:
    return await s.client.patch(f"/releases/{named}", json=body)


async def until(s: PublisherService, release_id: str, state: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def is_there() -> bool:
        found.update(await s.get(f"/releases/{release_id}"))
        return bool(found["state"] == state)

    await s.until(is_there)
    return found


def waiting_jobs(s: PublisherService) -> list[Mapping[str, Any]]:
    rows = s.author.rows("SELECT properties FROM jobs.job WHERE topic = %s", topic_of(AGENT))
    return [row[0] for row in rows]


def test_r35_a_release_goes_out_to_its_targets_alone(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        for name in ("north", "south"):
            await s.announce(name, -1)
        body = {"name": "for-some", "paths": ["/p0"], "targets": ["north", "north"]}
        given = await s.client.post("/releases", json={**body, "targets": ["nobody"]})
        assert (given.status_code, given.json()["type"]) == (404, "/problems/unknown-subscriber")
        given = await s.client.post("/releases", json=body)
        assert given.json()["targets"] == ["north"]
        assert (await change(s, "for-some", targets=["nobody"])).status_code == 404
        assert (await change(s, "for-some", add_paths=["/p1"])).json()["targets"] == ["north"]
        assert (await change(s, "for-some", targets=[])).json()["targets"] == []
        changed = await change(s, "for-some", targets=["south", "north"], at=LATER)
        assert changed.json()["targets"] == ["south", "north"]
        again = await planned(s, "/p2", targets=["south"])
        for path in (f"/distributions/{again['id']}", f"/releases/{again['id']}"):
            assert (await s.get(path))["targets"] == ["south"]
        with sending(s):
            for named in ("for-some", again["id"]):
                await change(s, named, at="now")
                await until(s, named, "SENT")
        entries = [placed.message.entry for placed in s.author.journaled()]
        assert [one.targets for one in entries] == [("south", "north"), ("south",)]
        [listed, _] = (await s.get("/releases"))["releases"]
        assert listed["targets"] in (["south", "north"], ["south"])

    site.run(scenario)


def test_a_request_with_a_moment_is_shown_as_scheduled_and_goes_out_then(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        answer = await planned(s, "/p0")
        assert (answer["state"], answer["offset"], answer["package_id"]) == ("SCHEDULED", None, "")
        shown = await s.get(answer["links"]["self"])
        assert (shown["state"], shown["at"], shown["paths"]) == ("SCHEDULED", LATER, ["/p0"])
        with sending(s):
            await until(s, answer["id"], "SCHEDULED")
            assert sent(s) == []
            moved = await change(s, answer["id"], at=PAST)
            assert (moved.status_code, moved.json()["version"]) == (200, 2)
            done = await until(s, answer["id"], "SENT")
            assert sent(s) == [(Action.ADD, ("/p0",))]
            shown = await s.get(f"/distributions/{answer['id']}?wait=1")
            assert (shown["id"], shown["package_id"]) == (answer["id"], done["package_id"])
            assert (shown["state"], shown["offset"]) == ("QUEUED", 0)
            removed = await planned(s, "/p0", action="DELETE", at="now")
            await until(s, removed["id"], "SENT")
        assert sent(s)[1:] == [(Action.DELETE, ("/p0",))]
        assert waiting_jobs(s) == []

    site.run(scenario)


def test_r6_it_carries_what_the_author_has_at_its_moment(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        answer = await planned(s, "/later")
        s.author.write(page("/later"))
        with sending(s):
            await change(s, answer["id"], at="now")
            await until(s, answer["id"], "SENT")
        [placed] = s.author.journaled()
        assert placed.message.entry.node_count == 1

    site.run(scenario)


def test_r5_a_key_leads_to_one_release_also_when_it_is_sent_since(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        key = {"Idempotency-Key": "k"}
        first = await planned(s, "/p0", headers=key, at=PAST)
        assert not first["repeated"]
        with sending(s):
            await until(s, first["id"], "SENT")
        again = await planned(s, "/p0", headers=key, at=PAST)
        assert (again["id"], again["repeated"]) == (first["id"], True)
        for other in ({"at": LATER}, {}):
            answer = await s.distribute("/p0", headers=key, **other)
            assert (answer.status_code, answer.json()["type"]) == (422, "/problems/key-reused")
        assert len(sent(s)) == 1
        assert len(s.author.rows("SELECT FROM bookkeeping.release")) == 1

    site.run(scenario)


def test_what_is_cancelled_or_gone_at_its_moment_is_not_sent_and_told(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        gone, off = [(await planned(s, path))["id"] for path in ("/nowhere", "/p1")]
        for _ in range(2):
            cancelled = await s.client.delete(f"/releases/{off}")
            assert (cancelled.status_code, cancelled.json()["state"]) == (200, "CANCELLED")
        assert [job["release"] for job in waiting_jobs(s)] == [gone]
        refused = await change(s, off, at="now")
        assert (refused.status_code, refused.json()["type"]) == (409, "/problems/release-ended")
        with sending(s):
            await change(s, gone, at="now")
            failed = await until(s, gone, "FAILED")
            assert "'/nowhere' does not exist" in failed["reason"]
            shown = await s.get(f"/distributions/{gone}")
            assert (shown["state"], shown["reason"]) == ("FAILED", failed["reason"])
            assert (await change(s, gone, targets=[])).json()["state"] == "DRAFT"
            assert sent(s) == []
            s.author.write(page("/nowhere"))
            await change(s, gone, at="now")
            await until(s, gone, "SENT")
        assert sent(s) == [(Action.ADD, ("/nowhere",))]
        late = await s.client.delete(f"/releases/{gone}")
        assert (late.status_code, late.json()["type"]) == (409, "/problems/release-ended")

    site.run(scenario)


def test_a_named_release_is_filled_and_goes_out_in_one_package(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        body = {"name": "spring", "paths": ["/p0"]}
        made = await s.client.post("/releases", json=body)
        assert (made.status_code, made.json()["state"], made.json()["at"]) == (201, "DRAFT", None)
        twice = await s.client.post("/releases", json=body)
        assert (twice.status_code, twice.json()["type"]) == (409, "/problems/release-exists")
        for _ in range(2):
            filled = await change(s, "spring", add_paths=["/p1", "/p2"], add_deep_paths=["/p3"])
            assert filled.json()["paths"] == ["/p0", "/p1", "/p2"]
        taken = await change(s, "spring", remove_paths=["/p1"])
        assert (taken.json()["paths"], taken.json()["deep_paths"]) == (["/p0", "/p2"], ["/p3"])
        refused = await change(s, "spring", remove_paths=["/p1"])
        assert (refused.status_code, refused.json()["type"]) == (422, "/problems/release-refused")
        assert (await change(s, "spring", at=LATER)).json()["state"] == "SCHEDULED"
        assert (await change(s, "spring", at=None)).json()["state"] == "DRAFT"
        assert waiting_jobs(s) == []
        with sending(s):
            for _ in range(2):
                assert (await change(s, "spring", at="now")).status_code == 200
                await until(s, "spring", "SENT")
        assert sent(s) == [(Action.ADD, ("/p0", "/p2", "/p3"))]
        empty = await s.client.post("/releases", json={"name": "spring"})
        assert empty.status_code == 201
        refused = await change(s, "spring", at="now")
        assert (refused.status_code, refused.json()["type"]) == (422, "/problems/release-refused")

    site.run(scenario)


def test_releases_are_listed_by_their_moments(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        for year in (2903, 2901, 2902):
            await planned(s, "/p0", at=f"{year}-01-01T00:00:00Z")
        await s.client.post("/releases", json={"name": "draft"})
        years, url = [], "/releases?limit=1"
        while url:
            listed = await s.get(url)
            years += [one["at"] and one["at"][:4] for one in listed["releases"]]
            url = listed["next"]
        assert years == ["2901", "2902", "2903", None]
        found = await s.get("/releases?state=DRAFT")
        assert [one["name"] for one in found["releases"]] == ["draft"]
        for cursor in ("x", "MTIz", "_" * 99):
            refused = await s.client.get(f"/releases?cursor={cursor}")
            assert refused.status_code == 422

    site.run(scenario)


def test_a_release_is_sent_with_the_rights_of_who_asked_last(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        editor = as_("editor")
        refused = await s.distribute("/p0", headers=editor, at=LATER)
        assert (refused.status_code, refused.json()["type"]) == (403, "/problems/path-refused")
        own = await planned(s, "/content/site/a", headers=editor)
        wider = await s.client.patch(
            f"/releases/{own['id']}", json={"add_paths": ["/p0"]}, headers=editor
        )
        assert wider.status_code == 403
        mixed = (await change(s, own["id"], add_paths=["/p0"])).json()
        assert (mixed["user"], mixed["version"]) == ("admin", 2)
        for request in (s.client.delete, s.client.patch):
            options: dict[str, Any] = {} if request == s.client.delete else {"json": {"at": "now"}}
            refused = await request(f"/releases/{own['id']}", headers=editor, **options)
            assert refused.status_code == 403
        assert (await s.client.get("/releases", headers=as_("nobody"))).status_code == 403
        assert (await s.client.get("/releases/none")).status_code == 404

    site.run(scenario)


@pytest.mark.parametrize(
    "at", [5, "tomorrow", "2030-01-01", "2030-01-01T00:00:00", "9000-01-01T00:00:00Z", True]
)
def test_a_moment_is_one_of_rfc_3339(site: Site, at: object) -> None:
    async def scenario(s: PublisherService) -> None:
        answer = await s.distribute("/p0", at=at)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"].startswith("#/at")
        producer = {"name": "n", "epoch": 1, "sequence": 1}
        answer = await s.distribute("/p0", at=LATER, producer=producer)
        assert (answer.status_code, "Idempotency-Key" in answer.text) == (422, True)

    site.run(scenario)


def test_a_release_waits_for_a_journal_that_is_away_and_says_so(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        answer = await planned(s, "/p0")
        s.parts.app.state.publisher.admission._limits = Never()
        with sending(s):
            await change(s, answer["id"], at="now")
            eventually(
                lambda: "still to import" in reason_of(s, answer["id"]), what="it says why it waits"
            )
            assert (await s.get(f"/releases/{answer['id']}"))["state"] == "SCHEDULED"
        assert sent(s) == []

    site.run(scenario)


class Never:
    """Limits that are always exceeded."""

    packages = bytes = 0

    def is_over(self, _: object) -> bool:
        return True


def reason_of(s: PublisherService, release_id: str) -> str:
    query = "SELECT reason FROM bookkeeping.release WHERE release_id = %s"
    return str(s.author.rows(query, release_id)[0][0])
