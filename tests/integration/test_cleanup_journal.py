"""What the journal keeps, changed over HTTP: retentions, and discarding up to an offset (R4)."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from packhorse.bookkeeping import subscriber_rows
from packhorse.bookkeeping.subscriber_rows import AnnouncementRow
from packhorse.messaging.api import Bounds, Outgoing
from packhorse.messaging.memory import MemoryJournal
from packhorse.messaging.memory_log import MemoryLog
from packhorse.messaging.topics import standard_topics
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.lifecycle import Lifecycle
from packhorse.wire.codec import encode_discovery
from packhorse.wire.messages import DiscoveryMessage, SubscriberState
from packhorse.wire.topics import Topics
from packhorse_services.cleanup.app import cleanup_service
from packhorse_services.cleanup.settings import Settings
from tests.harness.cleanup import TOPIC, Stage, staged
from tests.harness.clock import ManualClock

DAY_S = 24 * 3600
Ask = Callable[..., httpx.Response]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stage(database_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Stage]:
    """Its journal's clock stands still, years ago."""
    journal = MemoryJournal(MemoryLog(clock))
    with staged(database_url, tmp_path / "blobs", journal) as stage:
        yield stage


@pytest.fixture
def ask(stage: Stage) -> Iterator[Ask]:
    settings = Settings.model_validate({"database_url": stage.url, "keep_packages_hours": 48})
    service = cleanup_service(settings, stage.journal, stage.blobs, Authenticator.off())

    def ask(method: str, path: str, **body: Any) -> httpx.Response:
        async def asking() -> httpx.Response:
            transport = httpx.ASGITransport(service.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                return await http.request(method, path, json=body or None)

        return asyncio.run(asking())

    with Lifecycle(service.components[:1]):  # the pool
        yield ask


def announce(stage: Stage, name: str, offset: int, **changed: Any) -> None:
    log = {"journal_id": stage.journal.identity(TOPIC), **changed}
    state = SubscriberState("main", offset, **log)
    message = encode_discovery(DiscoveryMessage(name, (state,))).value
    subscriber_rows.write(stage.database, "main", [AnnouncementRow(name, message, 1)])


def left(answer: httpx.Response) -> list[tuple[str, int]]:
    return [(one["subscriber"], one["offset"]) for one in answer.json()["left_behind"]]


def test_r4_packages_that_everybody_has_are_discarded(stage: Stage, ask: Ask) -> None:
    packages = [stage.publish() for _ in range(5)]
    announce(stage, "ahead", 4)
    announce(stage, "just", 2)
    tried = ask("POST", "/journal/discard", up_to=2, dry_run=True)
    seen = {"oldest_offset": 3, "next_offset": 5, "offsets": 3, "left_behind": []}
    assert tried.json() == {"done": False, **seen}
    assert stage.journal.bounds(TOPIC) == Bounds(0, 5)
    assert ask("POST", "/journal/discard", up_to=2).json() == {"done": True, **seen}
    assert stage.journal.bounds(TOPIC) == Bounds(3, 5)
    again = ask("POST", "/journal/discard", up_to=1).json()
    assert (again["oldest_offset"], again["offsets"]) == (3, 0)
    stage.run()
    assert [stage.has(one) for one in packages] == [False, False, False, True, True]
    assert stage.acts() == [("anonymous", "discardPackages")] * 2, "a dry run is none"


def test_r13_who_has_not_imported_is_named_and_loses_nothing_unless_named(
    stage: Stage, ask: Ask
) -> None:
    for _ in range(5):
        stage.publish()
    announce(stage, "done", 3)
    announce(stage, "slow", 2)
    announce(stage, "elsewhere", 4, journal_id="another log")
    subscriber_rows.write(stage.database, "main", [AnnouncementRow("unread", b"\xff", 1)])
    lost = [("elsewhere", 4), ("slow", 2), ("unread", -1)]
    assert left(ask("POST", "/journal/discard", up_to=3, dry_run=True)) == lost
    for named in ([], ["slow", "unread"], ["done"]):
        refused = ask("POST", "/journal/discard", up_to=3, leave_behind=named)
        assert (refused.status_code, refused.json()["type"]) == (
            409,
            "/problems/would-lose-packages",
        )
        assert "elsewhere (agent main, done up to 4)" in refused.json()["detail"]
        assert stage.journal.bounds(TOPIC) == Bounds(0, 5)
    named = [name for name, _ in lost]
    done = ask("POST", "/journal/discard", up_to=3, leave_behind=named)
    assert left(done) == lost
    seen = {one["announced_at"] for one in done.json()["left_behind"]}
    assert seen == {"1970-01-01T00:00:00.001000Z"}
    assert stage.journal.bounds(TOPIC) == Bounds(4, 5)


def test_what_the_log_does_not_hold_is_not_discarded(stage: Stage, ask: Ask) -> None:
    empty = ask("POST", "/journal/discard", up_to=0)
    assert (empty.status_code, empty.json()["type"]) == (422, "/problems/not-in-log")
    stage.publish()
    beyond = ask("POST", "/journal/discard", up_to=1, dry_run=True)
    assert beyond.json()["detail"] == "the log of packages holds offsets 0 to 0, not 1"
    assert ask("POST", "/journal/discard", up_to=-1).status_code == 422
    assert ask("POST", "/journal/discard").status_code == 422
    assert stage.journal.bounds(TOPIC) == Bounds(0, 1)


def kept(ask: Ask) -> dict[str, int | None]:
    return {one["topic"]: one["retention_s"] for one in ask("GET", "/journal/topics").json()}


def test_retentions_change_and_never_to_an_order_in_which_outcomes_go_first(
    stage: Stage, ask: Ask
) -> None:
    def retain(topic: str, days: float | None) -> httpx.Response:
        seconds = None if days is None else int(days * DAY_S)
        return ask("PUT", f"/journal/topics/{topic}/retention", retention_s=seconds)

    week, hour = 7 * DAY_S, 3600
    others = dict.fromkeys(("status", "command", "event"), week)
    assert kept(ask) == {"package": week, **others, "discovery": hour}
    early = retain("package", 14)
    assert (early.status_code, early.json()["type"]) == (409, "/problems/retention-unfit")
    for part in others:
        assert f"`packhorse topics retention {part}`" in early.json()["detail"]
        assert retain(part, None).json()["retention_s"] is None
    assert retain("package", 14).json() == {
        "topic": "package",
        "name": TOPIC,
        "retention_s": 14 * DAY_S,
        "partitions": [{"oldest_offset": 0, "next_offset": 0}],
    }
    assert retain("status", 13).status_code == 409
    assert retain("status", 14).status_code == 200
    few = retain("package", 1)
    assert "PACKHORSE_KEEP_PACKAGES_HOURS" in few.json()["detail"]
    assert retain("package", 2).status_code == 200
    assert retain("discovery", 0.01).status_code == 409
    assert retain("discovery", 0.0001).status_code == 422
    assert retain("nothing", 3).status_code == 422
    kept_now = {"package": 2 * DAY_S, "status": 14 * DAY_S, "command": None, "event": None}
    assert kept(ask) == {**kept_now, "discovery": hour}
    assert stage.journal.check_topics(standard_topics(Topics(), kept_hours=48)) == []


def test_a_shorter_retention_by_which_nothing_goes_asks_for_nobody(stage: Stage, ask: Ask) -> None:
    for _ in range(2):
        stage.publish()
    stage.journal.truncate(TOPIC, 2)
    announce(stage, "slow", -1)
    announce(stage, "elsewhere", 1, journal_id="another log")
    path = "/journal/topics/package/retention"
    assert ask("PUT", path, retention_s=3 * DAY_S).status_code == 200
    assert kept(ask)["package"] == 3 * DAY_S
    assert left(ask("POST", "/journal/discard", up_to=1)) == []


def test_a_shorter_retention_in_which_all_were_published_asks_for_nobody(
    stage: Stage, ask: Ask, clock: ManualClock
) -> None:
    clock.jump(int(time.time() * 1000))
    stage.publish()
    announce(stage, "slow", -1)
    path = "/journal/topics/package/retention"
    assert ask("PUT", path, retention_s=3 * DAY_S).status_code == 200


def test_r4_a_shorter_retention_of_packages_asks_for_those_who_lose_them_too(
    stage: Stage, ask: Ask
) -> None:
    stage.publish()
    announce(stage, "done", 0)
    announce(stage, "slow", -1)
    path = "/journal/topics/package/retention"
    refused = ask("PUT", path, retention_s=3 * DAY_S)
    assert refused.json()["type"] == "/problems/would-lose-packages"
    assert "slow (agent main, done up to -1)" in refused.json()["detail"]
    assert "done (" not in refused.json()["detail"]
    assert kept(ask)["package"] == 7 * DAY_S
    assert ask("PUT", path, retention_s=3 * DAY_S, leave_behind=["slow"]).status_code == 200
    assert kept(ask)["package"] == 3 * DAY_S
    assert stage.acts() == [("anonymous", "setTopicRetention")], "a refusal is none"


def test_a_shorter_retention_of_another_topic_asks_for_nobody(stage: Stage, ask: Ask) -> None:
    """Its offsets are no packages'."""
    stage.publish()
    announce(stage, "slow", -1)
    stage.journal.append(Topics().status, Outgoing(b"old")).result()
    for days in (10, 8):
        answer = ask("PUT", "/journal/topics/status/retention", retention_s=days * DAY_S)
        assert answer.status_code == 200
    assert kept(ask)["status"] == 8 * DAY_S
