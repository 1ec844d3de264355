"""`/events` over real connections: sent, followed, and gone on with."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psycopg
import pytest

from packhorse import Client
from packhorse.jobs.event_store import NewEvent, record
from packhorse.jobs.events.pruning import EventRetention, prune_events
from packhorse_services.jobs.http import event_feed
from tests.harness.jobs.asking import add, ask
from tests.harness.jobs.site import JobsSite, jobs_site
from tests.harness.sse import EventClient
from tests.harness.waiting import eventually


@contextmanager
def follow(site: JobsSite, last_id: str = "", **query: str) -> Iterator[EventClient]:
    client = eventually(
        lambda: _opened(site, last_id, query), what="a place: those of other tests end"
    )
    try:
        client.until(lambda c: c.blocks)
        yield client
    finally:
        client.close()


def _opened(site: JobsSite, last_id: str, query: dict[str, str]) -> EventClient | None:
    try:
        return EventClient(site.url, "viewer", last_id, **query)
    except AssertionError as error:
        if "too-many-streams" in str(error):
            return None
        raise


def send(site: JobsSite, topic: str, **properties: object) -> None:
    answer = ask(site, "POST", "/events", json={"topic": topic, "properties": properties})
    assert answer.status_code == 202, answer.text
    assert answer.content == b""


def topics(client: EventClient) -> list[str]:
    return [one["topic"] for one in client.events()]


def test_an_event_that_is_sent_is_heard(site: JobsSite) -> None:
    with follow(site) as client:
        send(site, "shop/sold", article=7)
        client.until(lambda c: c.events("event"))
        [event] = client.events("event")
    assert (event["topic"], event["properties"]) == ("shop/sold", {"article": 7})
    assert event["application"]
    assert event["created_at"]


def test_what_becomes_of_a_job_is_reported(site: JobsSite) -> None:
    with follow(site, topic="packhorse/job/*") as client:
        number = add(site)["job"]["number"]
        ask(site, "POST", f"/jobs/{number}/stop").raise_for_status()
        client.until(lambda c: len(c.events()) == 2)
    assert topics(client) == ["packhorse/job/ADDED", "packhorse/job/CANCELLED"]
    assert {one["properties"]["number"] for one in client.events()} == {number}


def test_who_comes_back_gets_the_rest_from_behind_any_event(site: JobsSite) -> None:
    with follow(site) as client:
        with psycopg.connect(site.database_url) as connection:
            record(connection, [NewEvent(f"shop/sold-{n}", "me") for n in range(5)])
        send(site, "shop/closed")
        client.until(lambda c: len(c.events()) == 6)
        reported = [
            (block.id, topic) for block, topic in zip(_data(client), topics(client), strict=True)
        ]
    wanted = [topic for _, topic in reported]
    for at, (last_id, _) in enumerate(reported[:-1]):
        with follow(site, last_id) as again:
            again.until(lambda c, left=5 - at: len(c.events()) == left)
            assert topics(again) == wanted[at + 1 :]


def test_the_library_follows_the_topics_that_it_names(site: JobsSite) -> None:
    with follow(site) as client:
        send(site, "shop/opened")
        client.until(lambda c: c.events("event"))
    for topic in ("shop/sold", "store/sold"):
        send(site, topic)
    [opened] = _data(client)
    with Client(site.url, jobs=site.url, token="viewer") as library:
        assert next(library.job_events("store/*", after=opened.id)).data.topic == "store/sold"


@pytest.mark.proof
def test_a_stream_that_sends_wrong_positions_would_be_noticed(
    site: JobsSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checker that can't fail is none: each event is sent with the position of its page."""
    monkeypatch.setattr(
        event_feed, "positions", lambda _before, page: [page.position] * len(page.events)
    )
    with follow(site) as client:
        with psycopg.connect(site.database_url) as connection:
            record(connection, [NewEvent(f"shop/sold-{n}", "me") for n in range(5)])
        client.until(lambda c: len(c.events()) == 5)
        first = _data(client)[0].id
    send(site, "shop/closed")
    with follow(site, first) as again:
        again.until(lambda c: "shop/closed" in topics(c))
        assert topics(again) == ["shop/closed"], "four events are lost"


def _data(client: EventClient) -> list:
    return [block for block in client.blocks if block.data]


def test_a_commit_that_comes_late_is_not_missed(site: JobsSite) -> None:
    with psycopg.connect(site.database_url) as late:
        record(late, [NewEvent("shop/late", "me")])
        with follow(site) as client:
            send(site, "shop/early")
            client.until(lambda c: topics(c) == ["shop/early"])
            last_id = _data(client)[-1].id
            late.commit()
            client.until(lambda c: topics(c) == ["shop/early", "shop/late"])
        with follow(site, last_id) as again:
            again.until(lambda c: topics(c) == ["shop/late"])


def test_what_is_not_wanted_moves_the_position(site: JobsSite) -> None:
    with follow(site, topic="mail/**") as client:
        before = client.last_id
        send(site, "shop/sold")
        client.until(lambda c: c.last_id not in ("", before))
        position = client.last_id
        assert client.events() == []
    send(site, "mail/sent")
    with follow(site, position) as again:
        again.until(lambda c: topics(c) == ["mail/sent"])


def test_a_gap_is_reported_once_and_then_it_goes_on(site: JobsSite) -> None:
    with follow(site) as client:
        send(site, "shop/sold")
        client.until(lambda c: c.events())
        old = client.blocks[0].id
    send(site, "shop/lost")

    @contextmanager
    def connect() -> Iterator[psycopg.Connection]:
        with psycopg.connect(site.database_url) as connection:
            yield connection

    for _ in range(2):
        prune_events(connect, EventRetention(events_s=0))
    with follow(site, old) as again:
        again.until(lambda c: c.events("gap"))
        send(site, "shop/sold-again")
        again.until(lambda c: c.events("event"))
        assert again.events("gap") == [{"reason": "PRUNED"}]
        assert [one["topic"] for one in again.events("event")] == ["shop/sold-again"]


@pytest.mark.parametrize("last_id", ["x", "1:2", "9:1:", "1:1:;2:2:;", "1" * 9_000])
def test_a_position_that_is_none_is_refused(site: JobsSite, last_id: str) -> None:
    answer = ask(site, "GET", "/events", "viewer", headers={"Last-Event-ID": last_id})
    assert answer.status_code == 422, answer.text


def test_events_of_the_product_are_sent_by_nobody_else(site: JobsSite) -> None:
    for body in (
        {"topic": "packhorse/job/FINISHED"},
        {"topic": "a", "properties": {"event.application": "me"}},
        {"topic": "a b"},
        {"topic": "a", "properties": {"text": "x" * 65_536}},
    ):
        assert ask(site, "POST", "/events", json=body).status_code == 422, body
    assert ask(site, "POST", "/events", "viewer", json={"topic": "a"}).status_code == 403


def test_the_same_key_sends_once(site: JobsSite) -> None:
    with follow(site) as client:
        for _ in range(3):
            headers = {"Idempotency-Key": "one"}
            ask(site, "POST", "/events", json={"topic": "a"}, headers=headers).raise_for_status()
        send(site, "b")
        client.until(lambda c: topics(c)[-1:] == ["b"])
        assert topics(client) == ["a", "b"]


def test_places_are_bounded_and_come_back(site: JobsSite) -> None:
    with follow(site), follow(site):
        refused = ask(site, "GET", "/events", "viewer")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
    with follow(site):
        pass


def test_streams_end_cleanly_when_the_process_ends(database_url: str) -> None:
    with jobs_site(database_url) as own:
        client = EventClient(own.url, "viewer")
        client.until(lambda c: c.blocks)
        own.service.app.state.parts.hub.end_streams()
        eventually(lambda: client.clean_end is not None, what="its end")
        assert client.clean_end is True
        assert httpx.get(f"{own.url}/livez", timeout=120).is_success
        client.close()
