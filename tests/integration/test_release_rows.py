"""Rows of releases: each agent has its own, by name and by moment, until they are forgotten."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from psycopg import Connection

from packhorse_services.publisher.outbox import release_rows
from packhorse_services.publisher.outbox.release_rows import MAX_REASON, Release, ReleaseMoved
from packhorse_services.publisher.outbox.request import ReleaseVersion
from tests.harness.jobs.stored import bookkeeper
from tests.harness.publishing import AGENT

NOW = datetime.now(UTC)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with bookkeeper(database_url) as connection:
        yield connection


def put(
    connection: Connection,
    release_id: str,
    *,
    name: str = "",
    state: str = "DRAFT",
    agent: str = AGENT,
    hours: float = 0,
) -> None:
    """Write a release that was made and changed so many hours ago."""
    at = NOW if state == "SCHEDULED" else None
    what: tuple[list[str], str, list[str], list[str], list[str]] = (["/"], "ADD", ["/p"], [], [])
    release = Release(release_id, name, 1, state, at, None, "tester", *what, "", "", "", NOW, NOW)
    release_rows.put(connection, agent, release)
    age(connection, release_id, hours)


def age(connection: Connection, release_id: str, hours: float) -> None:
    connection.execute(
        "UPDATE bookkeeping.release SET created_at = created_at - %(age)s, "
        "changed_at = changed_at - %(age)s WHERE release_id = %(id)s",
        {"age": timedelta(hours=hours), "id": release_id},
    )


def test_an_agent_sees_its_own_alone(connection: Connection) -> None:
    put(connection, "r1", name="spring")
    for number in (2, 3):
        put(connection, f"r{number}", name=f"spring{number % 2}", agent="other")
    assert list(release_rows.read(connection, AGENT, ["r1", "r2"])) == ["r1"]
    assert release_rows.find(connection, AGENT, "spring0") is None
    assert release_rows.find(connection, AGENT, "r2") is None
    assert [one.release_id for one in release_rows.page(connection, AGENT, None, None, 9)] == ["r1"]
    assert release_rows.count_open(connection, AGENT) == 1


def test_a_name_is_that_of_the_open_one_or_else_of_the_newest(connection: Connection) -> None:
    put(connection, "r1", name="spring", state="SENT", hours=3)
    put(connection, "r2", name="spring", state="CANCELLED", hours=1)
    assert named(connection, "spring") == "r2"
    put(connection, "r3", name="spring", hours=2)
    assert named(connection, "spring") == "r3"
    put(connection, "r4", name="r1")
    assert named(connection, "r1") == "r1"
    assert release_rows.find(connection, AGENT, "summer") is None


def named(connection: Connection, name: str) -> str | None:
    found = release_rows.find(connection, AGENT, name)
    return found and found.release_id


def test_a_change_is_stored_as_a_whole(connection: Connection) -> None:
    put(connection, "r1", hours=1)
    before = release_rows.read(connection, AGENT, ["r1"])["r1"]
    changed = replace(before, version=2, state="SCHEDULED", fires_at=NOW, job=5, caller="editor")
    changed = replace(changed, roots=["/b"], action="DELETE", paths=["/q"], deep_paths=["/r"])
    changed = replace(changed, targets=["north"], traceparent="trace", reason="waits")
    release_rows.put(connection, AGENT, changed)
    found = release_rows.read(connection, AGENT, ["r1"])["r1"]
    assert replace(found, changed_at=before.changed_at) == changed
    assert found.changed_at > before.changed_at


def test_r5_what_is_sent_is_what_was_to_be_sent_and_is_kept_from_then_on(
    connection: Connection,
) -> None:
    put(connection, "r1", state="SCHEDULED", hours=2)
    release_rows.waits(connection, ReleaseVersion("r1", 1), "the journal is away")
    age(connection, "r1", 2)
    for other in (ReleaseVersion("r1", 2), ReleaseVersion("r2", 1)):
        with pytest.raises(ReleaseMoved):
            release_rows.sent(connection, {other: "package"})
    release_rows.sent(connection, {ReleaseVersion("r1", 1): "package"})
    found = release_rows.read(connection, AGENT, ["r1"])["r1"]
    assert (found.state, found.package_id, found.reason) == ("SENT", "package", "")
    with pytest.raises(ReleaseMoved):
        release_rows.sent(connection, {ReleaseVersion("r1", 1): "another"})
    assert release_rows.forget(connection, 3600, 9) == 0


def test_those_without_a_moment_follow_each_other_last(connection: Connection) -> None:
    put(connection, "r9", state="SCHEDULED")
    for release_id in ("r3", "r1", "r2"):
        put(connection, release_id)
    seen, above = [], None
    while found := release_rows.page(connection, AGENT, None, above, 1):
        [one] = found
        seen.append(one.release_id)
        above = one.fires_at or datetime(9999, 1, 1, tzinfo=UTC), one.release_id
    assert seen == ["r9", "r1", "r2", "r3"]


def test_what_has_ended_long_ago_is_forgotten(connection: Connection) -> None:
    for state in ("DRAFT", "SCHEDULED", "SENT", "FAILED", "CANCELLED"):
        put(connection, state, state=state, hours=2)
    put(connection, "young", state="SENT")
    assert [release_rows.forget(connection, 3600, 2) for _ in range(3)] == [2, 1, 0]
    left = connection.execute("SELECT release_id FROM bookkeeping.release").fetchall()
    assert sorted(left) == [("DRAFT",), ("SCHEDULED",), ("young",)]


def test_a_reason_is_short_and_what_a_database_takes(connection: Connection) -> None:
    for release_id, version in (("r1", 1), ("r2", 2)):
        put(connection, release_id, state="SCHEDULED")
        release_rows.failed(connection, ReleaseVersion(release_id, version), "\0x" * MAX_REASON)
    found = release_rows.read(connection, AGENT, ["r1", "r2"])
    assert (found["r1"].state, found["r1"].reason) == ("FAILED", "x" * (MAX_REASON // 2))
    assert (found["r2"].state, found["r2"].reason) == ("SCHEDULED", ""), "another version"
