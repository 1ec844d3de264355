"""A part of a schedule is changed, and the rest stays (RFC 7396)."""

from typing import Any

import pytest

from packhorse.jobs.scheduling.definition import JobAction, ScheduleDefinition
from packhorse.jobs.scheduling.store import declare_schedule
from packhorse.jobs.scheduling.timing import Cron
from packhorse_services.jobs.http.schedule_schemas import merged
from tests.harness.jobs.asking import ask, emptied
from tests.harness.jobs.site import JobsSite

PATH = "/schedules/nightly"
NIGHTLY = {
    "cron": "30 2 * * *",
    "time_zone": "Europe/Berlin",
    "topic": "images/tidy",
    "properties": {"keep": 3, "of": {"size": 1, "kind": "large"}},
    "concurrent": False,
}


@pytest.fixture
def site(running: JobsSite) -> JobsSite:
    emptied(running)
    assert ask(running, "PUT", PATH, json=NIGHTLY).is_success
    return running


def patch(site: JobsSite, body: Any, caller: str = "operator", **headers: str) -> Any:
    given = {"Content-Type": "application/merge-patch+json", **headers}
    return ask(site, "PATCH", PATH, caller, json=body, headers=given)


# The examples of RFC 7396, appendix A.
@pytest.mark.parametrize(
    ("target", "change", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_is_that_of_the_rfc(target: Any, change: Any, result: Any) -> None:
    assert merged(target, change) == result


def test_what_is_not_named_stays(site: JobsSite) -> None:
    before = ask(site, "GET", PATH).json()
    change = {"properties": {"of": {"size": 2, "kind": None}}, "priority": 7}
    answer = patch(site, change)
    assert answer.status_code == 200, answer.text
    after = answer.json()
    assert after["properties"] == {"keep": 3, "of": {"size": 2}}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"properties", "priority", "changed", "updated_at"}
    assert ask(site, "GET", PATH).json() == after


@pytest.mark.parametrize(
    "change",
    [{"cron": None, "period_s": 3600}, {"cron": None, "time_zone": None, "period_s": 3600}],
)
def test_another_cadence_as_documented(site: JobsSite, change: Any) -> None:
    both = patch(site, {"period_s": 3600})
    assert both.status_code == 422, both.text
    assert "exactly one of cron, period_s and at" in both.text
    zoned = patch(site, {"cron": None, "time_zone": "Europe/Berlin", "period_s": 3600})
    assert zoned.status_code == 422, zoned.text
    assert "time_zone belongs to cron" in zoned.text
    other = patch(site, change)
    assert other.status_code == 200, other.text
    shown = other.json()
    assert (shown["cron"], shown["time_zone"], shown["period_s"]) == (None, None, 3600)
    assert shown["concurrent"] is False


def test_a_number_that_jsonb_writes_with_all_its_digits_stays_as_it_was(site: JobsSite) -> None:
    large = {"size": 1e20, "sizes": [1e300]}
    assert ask(site, "PUT", PATH, json={**NIGHTLY, "properties": large}).is_success
    fired = ask(site, "POST", f"{PATH}/fire")
    assert fired.status_code == 200, fired.text
    [number] = fired.json()["jobs"]
    assert "0" * 20 not in ask(site, "GET", f"/jobs/{number}").text
    shown = patch(site, {"description": "large"})
    assert (shown.status_code, shown.json()["properties"]) == (200, large), shown.text


def test_only_what_was_seen_is_changed(site: JobsSite) -> None:
    seen = ask(site, "GET", PATH).headers["etag"]
    first = patch(site, {"suspended": True}, **{"If-Match": seen})
    assert (first.status_code, first.json()["suspended"]) == (200, True)
    assert patch(site, {"priority": 1}, **{"If-Match": seen}).status_code == 412
    assert patch(site, {"priority": 1}, **{"If-Match": first.headers["etag"]}).is_success


def test_who_only_suspends_a_declared_schedule_does_not_take_it_from_its_program(
    site: JobsSite,
) -> None:
    declared = ScheduleDefinition("declared", Cron("0 3 * * *"), JobAction("images/tidy"))
    with site.bookkeeper() as connection:
        declare_schedule(connection, declared)
    path = "/schedules/declared"
    for suspended in (True, True, False):
        shown = ask(site, "PATCH", path, json={"suspended": suspended}).json()
        assert (shown["suspended"], shown["changed"]) == (suspended, False)
    shown = ask(site, "PATCH", path, json={"description": "ours"}).json()
    assert (shown["description"], shown["changed"]) == ("ours", True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cron": "never"},
        {"topic": None},
        {"topic": "/a"},
        {"priority": 1000},
        {"next_fire_time": None},
        {"name": "other"},
        {"suspended": "yes"},
        {"times": 0},
        {"properties": 3},
        [],
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(site: JobsSite, wrong: Any) -> None:
    before = ask(site, "GET", PATH).json()
    answer = patch(site, wrong)
    assert answer.status_code == 422, answer.text
    assert ask(site, "GET", PATH).json() == before


def test_a_schedule_that_is_not_there_and_a_caller_who_may_not(site: JobsSite) -> None:
    assert ask(site, "PATCH", "/schedules/none", json={"priority": 1}).status_code == 404
    assert patch(site, {"priority": 1}, "viewer").status_code == 403
