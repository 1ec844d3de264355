"""Every act of the console has a line in its audit log."""

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from packhorse.runtime import audit
from packhorse_services.console.app import _PAGES
from tests.harness.console import ConsoleSite, console_site, distribution
from tests.harness.waiting import eventually


@pytest.fixture(scope="module")
def site() -> Iterator[ConsoleSite]:
    with console_site() as served:
        yield served


_FORMS = {
    "agent": "main",
    "subscriber": "sub2",
    "release": "r1",
    "paths": "/site",
    "action": "ADD",
    "key": "k1",
    "offset": "1",
}


def test_what_is_for_some_subscribers_alone_says_so(
    site: ConsoleSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, audit.LOGGER)
    site.publisher.answers["POST /distribute"] = {**distribution("d1"), "repeated": False}
    site.post("distribute", **_FORMS, to="sub1, sub2")
    [line] = eventually(lambda: lines_of(caplog), what="a line") or []
    assert (line["distribution"], "to sub1, sub2" in line["form"]) == ("d1", True)
    assert not {"targets", "paths", "action"} & line.keys(), "the form says it already"


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the lines but those of signing in, which comes before the first act."""
    lines = [vars(one) for one in caplog.records if one.name == audit.LOGGER]
    return [line for line in lines if line["object"] != "/pages/sign-in"]


def test_each_act_has_a_line_in_the_audit_log_with_who_and_from_where(
    site: ConsoleSite, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes of it; a new page that acts is in the list by itself."""
    monkeypatch.setattr(audit, "_limit", audit.RefusalLimit())
    caplog.set_level(logging.INFO, audit.LOGGER)
    acts = {
        route.path
        for module in _PAGES
        for route in module.router.routes
        if isinstance(route, APIRoute) and route.methods == {"POST"}
    } - {"/pages/sign-in/link", "/pages/sign-in-links"}
    actions = {
        "queue": ["retry", "pause", "resume", "stop"],
        "releases": ["send", "cancel"],
        "jobs": ["retry", "stop"],
    }
    paths = {
        re.sub(r"\{\w+(:int)?\}", "1", path.replace("{action}", action).replace("{turn}", "resume"))
        for path in acts
        for action in actions.get(path.split("/")[2], [""])
    }
    assert len(paths) >= 10
    for path in sorted(paths):
        for token, caller in (("operator", "operator"), ("viewer", "viewer"), (None, "")):
            caplog.clear()
            answer = site.post(path.removeprefix("/pages/"), token, **_FORMS)
            lines = eventually(lambda: lines_of(caplog), what=f"a line of {path}")
            assert lines is not None
            assert [one["caller"] for one in lines] == [caller], path
            assert (lines[0]["status"], lines[0]["address"]) == (answer.status_code, "127.0.0.1")
            assert lines[0]["object"] == path
            about = "agent main, subscriber sub2, release r1, action ADD, offset 1, paths /site"
            assert lines[0]["form"] == about, path
