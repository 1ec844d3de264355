"""Documents as tables, names and JSON."""

import json
from typing import Any

import pytest

from packhorse_services.cli.client.views import DISTRIBUTION, QUEUE, QUEUES, SUBSCRIBERS, Format

BLOCKED = {
    "subscriber": "sub1",
    "state": "BLOCKED",
    "reason": "[red]no[/] such blob",
    "length": 12,
    "offset": 7,
    "head": {
        "offset": 8,
        "attempts": 3,
        "last_error": "[red]no[/] such blob",
        "next_attempt_at": None,
    },
    "errors": 0,
    "lag_seconds": 61.4,
    "editable": True,
}
IDLE = {
    **BLOCKED,
    "subscriber": "sub2",
    "state": "IDLE",
    "reason": "",
    "length": None,
    "head": None,
}
DOCUMENT: dict[str, Any] = {"agent": "main", "queues": [BLOCKED, IDLE]}


def test_a_table_has_a_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    QUEUES.show(DOCUMENT, Format.TABLE)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["SUBSCRIBER", "STATE", "LENGTH", "ATTEMPTS", "ERRORS", "LAG", "REASON"],
        ["sub1", "BLOCKED", "12", "3", "0", "61", "s", "[red]no[/]", "such", "blob"],
        ["sub2", "IDLE", "-", "-", "0", "61", "s", "-"],
    ]


def test_the_slowest_are_reported_beside_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = {**BLOCKED, "length": None, "at_least": 12, "at_most": 40}
    document = {**DOCUMENT, "queues": [unknown], "slowest": unknown, "slowest_editable": None}
    QUEUES.show(document, Format.TABLE)
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split()[2] == "12–40"
    assert shown.err == "slowest: sub1 (12–40 waiting)\n"


def test_the_reason_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    QUEUES.show(DOCUMENT, Format.TABLE)
    assert "[red]no[/] such blob" in capsys.readouterr().out


def test_names_are_for_other_programs(capsys: pytest.CaptureFixture[str]) -> None:
    QUEUES.show(DOCUMENT, Format.NAME)
    assert capsys.readouterr().out == "sub1\nsub2\n"


def test_json_is_the_document_itself(capsys: pytest.CaptureFixture[str]) -> None:
    QUEUES.show(DOCUMENT, Format.JSON)
    assert json.loads(capsys.readouterr().out) == DOCUMENT


def test_many_paths_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"offset": 1, "action": None, "paths": ["/a", "/b", "/c"], "deep_paths": []}
    QUEUE.show({"entries": [entry]}, Format.TABLE)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["1", "-", "/a", "(+2)", "-"]


def test_a_distribution_says_what_it_is_before_where_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    part = {"subscriber": "sub1", "state": "RETRYING", "stale": False, "attempts": 0}
    document = {
        "id": "d-1",
        "state": "QUEUED",
        "action": "ADD",
        "paths": ["/a", "/b"],
        "deep_paths": [],
        "accepted_at": "2026-11-23T08:00:00Z",
        "subscribers": [{**part, "reason": "no such blob"}],
    }
    DISTRIBUTION.show(document, Format.TABLE)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["ID", "STATE", "ACTION", "PATHS", "DEEP", "PATHS", "ACCEPTED"],
        ["d-1", "QUEUED", "ADD", "/a", "(+1)", "-", "2026-11-23T08:00:00Z"],
        [],
        ["SUBSCRIBER", "STATE", "STALE", "ATTEMPTS", "REASON"],
        ["sub1", "RETRYING", "no", "0", "no", "such", "blob"],
    ]


def test_a_subscriber_is_behind_by_packages_and_lags_by_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = {"subscriber": "sub1", "state": "RUNNING", "offset": 3, "behind": 4, "lag_seconds": 61.4}
    SUBSCRIBERS.show(
        {"subscribers": [{**one, "incomplete": True, "last_seen": "now"}]}, Format.TABLE
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["SUBSCRIBER", "STATE", "OFFSET", "BEHIND", "LAG", "INCOMPLETE", "LAST", "SEEN"],
        ["sub1", "RUNNING", "3", "4", "61", "s", "yes", "now"],
    ]


def test_an_empty_list_says_so_beside_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    QUEUE.show({"entries": []}, Format.TABLE)
    assert capsys.readouterr().err == "nothing to show\n"


@pytest.mark.parametrize("form", [Format.TABLE, Format.NAME])
def test_a_list_that_goes_on_names_its_cursor(
    capsys: pytest.CaptureFixture[str], form: Format
) -> None:
    entry = {"package_id": "p", "offset": 3, "action": "ADD", "paths": ["/a"], "deep_paths": []}
    document = {"entries": [entry], "next": "/queues/sub1?cursor=bzM&limit=1"}
    QUEUE.show(document, form)
    assert capsys.readouterr().err == "there is more: use --cursor bzM, or a higher --limit\n"
    QUEUE.show({**document, "entries": []}, form)
    assert "--cursor bzM" in capsys.readouterr().err
    QUEUE.show({**document, "next": None}, form)
    assert capsys.readouterr().err == ""
