"""Signing in to the console; sessions of it, what a cookie is worth, and what ends it."""

from collections.abc import Iterator

import httpx
import pytest

from tests.harness.console import ConsoleSite, console_site, queue
from tests.harness.waiting import eventually

FROM_HERE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def site(running: ConsoleSite) -> Iterator[ConsoleSite]:
    running.publisher.forget()
    running.publisher.shows(queue("sub1"))
    known = dict(running.callers.known)
    yield running
    running.callers.known = known
    running.sessions.clear()


def status(site: ConsoleSite, cookie: str, path: str = "overview/content") -> int:
    headers = {"Cookie": cookie}
    return httpx.get(f"{site.url}/pages/{path}", headers=headers, timeout=120).status_code


def sign_out(site: ConsoleSite, cookie: str) -> httpx.Response:
    kind = "application/x-www-form-urlencoded"
    headers = {"Cookie": cookie, "Content-Type": kind, **FROM_HERE}
    return httpx.post(f"{site.url}/pages/sign-out", headers=headers, timeout=120)


def sign_in(site: ConsoleSite, token: str, **headers: str) -> httpx.Response:
    """Send the form as it is, with these headers only."""
    form = {"token": token, "next": "//elsewhere.example"}
    return httpx.post(f"{site.url}/pages/sign-in", data=form, headers=headers, timeout=120)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "http://elsewhere.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 303),
    ],
)
def test_the_form_says_where_it_comes_from(
    site: ConsoleSite, headers: dict[str, str], status: int
) -> None:
    answer = sign_in(site, "viewer", **headers)
    assert answer.status_code == status
    assert answer.headers.get("location", "/pages/overview") == "/pages/overview"


@pytest.mark.parametrize(
    ("token", "says"), [("nonsense", "No such token"), ("editor", "queues:read")]
)
def test_a_wrong_token_is_reported(site: ConsoleSite, token: str, says: str) -> None:
    answer = sign_in(site, token, **FROM_HERE)
    assert answer.status_code == 401
    assert says in answer.text.partition('role="alert">')[2].partition("</p>")[0]
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "wanted", ["http://[", "//[", "//elsewhere.example", "/\\elsewhere.example", "/pages/\\x", "/"]
)
def test_the_form_leads_nowhere_but_to_a_page_of_ours(site: ConsoleSite, wanted: str) -> None:
    url = f"{site.url}/pages/sign-in"
    answer = httpx.get(url, params={"next": wanted}, timeout=120)
    assert (answer.status_code, 'value="/pages/overview"' in answer.text) == (200, True)
    form = {"token": "viewer", "next": wanted}
    answer = httpx.post(url, data=form, headers=FROM_HERE, timeout=120)
    assert (answer.status_code, answer.headers["location"]) == (303, "/pages/overview")


def test_a_form_is_short(site: ConsoleSite) -> None:
    assert sign_in(site, "x" * 64 * 1024, **FROM_HERE).status_code == 413


def test_behind_an_encrypted_connection_the_cookie_is_for_such_only(site: ConsoleSite) -> None:
    origin = site.url.replace("http://", "https://")
    assert "; Secure" in sign_in(site, "viewer", Origin=origin).headers["set-cookie"]


def test_signing_out_ends_the_cookie_wherever_it_was_copied_to(site: ConsoleSite) -> None:
    cookie, other = site.signed_in("viewer"), site.signed_in("viewer")
    assert "viewer" not in cookie
    assert (status(site, cookie), status(site, other)) == (200, 200)
    assert "Max-Age=0" in sign_out(site, cookie).headers["set-cookie"]
    assert (status(site, cookie), status(site, other)) == (401, 200)


def test_a_token_that_is_taken_back_ends_its_sessions_for_good(site: ConsoleSite) -> None:
    cookie = site.signed_in("viewer")
    back = site.callers.known.pop("viewer")
    assert status(site, cookie) == 401
    site.callers.known["viewer"] = back
    assert status(site, cookie) == 401


def test_a_session_is_never_one_that_somebody_chose(site: ConsoleSite) -> None:
    """Who has planted a cookie in a browser does not know the session that begins there."""
    planted = site.signed_in("viewer")
    renewed = site.signed_in("operator", Cookie=planted)
    assert renewed != planted
    assert status(site, planted) == 401, "and what it was is over"
    guessed = site.signed_in("viewer", Cookie="packhorse_overview=guessed")
    assert not guessed.endswith("=guessed")


def test_a_token_is_no_session(site: ConsoleSite) -> None:
    assert status(site, "packhorse_overview=viewer") == 401


def test_a_stream_ends_with_its_session(site: ConsoleSite) -> None:
    site.publisher.answers["GET /events"] = b": here\n\n"
    cookie = site.signed_in("operator")
    url = f"{site.url}/pages/live/events"
    with httpx.stream("GET", url, headers={"Cookie": cookie}, timeout=120) as answer:
        lines = answer.iter_lines()
        assert "events follow" in next(lines)
        sign_out(site, cookie)
        assert not [line for line in lines if line.startswith("event: row")], "and it ended"


def test_a_session_ends_by_itself() -> None:
    with console_site(session_idle_s=0.1) as short:
        short.publisher.shows(queue("sub1"))
        cookie = short.signed_in("viewer")
        eventually(lambda: status(short, cookie) == 401, what="the session is over")


def test_over_https_no_other_host_can_have_set_the_cookie() -> None:
    with console_site(console_url="https://packhorse.example") as site:
        site.publisher.shows(queue("sub1"))
        cookie = site.signed_in("viewer")
        name, _, key = cookie.partition("=")
        assert name == "__Host-packhorse_overview"
        assert status(site, cookie) == 200
        assert status(site, f"packhorse_overview={key}") == 401
        ended = sign_out(site, cookie).headers["set-cookie"]
        assert ended.startswith(f"{name}=")
        assert all(one in ended for one in ("Max-Age=0", "Path=/;", "Secure"))
        assert status(site, cookie) == 401
