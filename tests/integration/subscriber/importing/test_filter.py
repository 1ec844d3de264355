"""A subscriber that takes some paths and leaves out others (R35)."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from packhorse.content.tree import upsert
from packhorse.db import rows
from packhorse.db.metadata import BOOKKEEPER, IMPORTER
from packhorse.db.roles import act_as
from packhorse.jobs.content_changes.watches import ContentWatch, add_watch
from packhorse.packages import effects
from packhorse.packages.path_filter import PathFilter
from packhorse.wire.messages import Action, Status
from packhorse_services.subscriber.journal.failures import Fenced
from packhorse_services.subscriber.journal.stored_filter import store
from tests.harness.feed import Feed, page
from tests.harness.postgres import Databases
from tests.harness.snapshots import snapshot_of
from tests.harness.subscriber import Worker, content_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.conftest import Workers
from tests.integration.subscriber.running import heard_at_each, imported, running
from tests.integration.subscriber.snapshots.histories import joining

_LARGE = "x" * 600_000
SITE = ("/site", "/site/a", "/site/a/own", "/site/b", "/site/private", "/site/private/notes")


def have(url: str, *paths: str) -> None:
    """Write nodes that no package has brought."""
    with psycopg.connect(url) as connection:
        act_as(connection, IMPORTER)
        upsert(connection, [page(path, 7) for path in paths])


def types(url: str) -> dict[str, str]:
    return {path: node[0] for path, node in content_of(url).items()}


@pytest.mark.parametrize("large", [False, True], ids=["collected", "streamed"])
def test_r35_a_subtree_above_what_is_left_out_spares_it(
    feed: Feed, worker: Worker, large: bool
) -> None:
    worker.path_filter = PathFilter(exclude=("/site/private", "/site/a/own"))
    have(worker.url, *SITE)
    text = {"text": _LARGE} if large else {}
    brought = [page("/site", 1, **text), page("/site/new", 1, **text)]
    feed.add(*brought, page("/site/private/secret"), deep=["/site"])
    worker.run()
    found = content_of(worker.url)
    assert set(found) == {*SITE, "/site/new"} - {"/site/b"}
    assert found["/site"][1]["version"] == 1
    assert found["/site/private"][1] == {"version": 7}
    assert found["/site/a"][0] == "folder"  # it is gone, and what it holds is not
    feed.delete("/site")
    worker.run()
    kept = {"/site/a/own": "page", "/site/private": "page", "/site/private/notes": "page"}
    assert types(worker.url) == {"/site": "folder", "/site/a": "folder", **kept}


def test_r8_what_is_removed_in_part_has_no_node_that_its_group_wrote_before(
    feed: Feed, worker: Worker
) -> None:
    worker.path_filter = PathFilter(exclude=("/site/private",))
    feed.add(page("/first"))  # alone, as the first after a start
    worker.run()
    feed.add(page("/site/old"))
    feed.add(page("/site"), deep=["/site"])
    worker.run()
    assert set(content_of(worker.url)) == {"/first", "/site"}


def test_r35_what_is_left_out_whole_is_told_with_the_rule(feed: Feed, worker: Worker) -> None:
    worker.path_filter = PathFilter(("/site",), ("/site/private",))
    offsets = [
        feed.add(page("/other"), page("/elsewhere")),
        feed.add(page("/site/private/a"), deep=["/site/private/a"]),
        feed.delete("/site/private"),
        feed.send(Action.TEST, "/other"),
        feed.add(page("/other"), page("/site/a")),
    ]
    worker.run()
    assert types(worker.url) == {"/site": "folder", "/site/a": "page"}
    worker.send_statuses()
    told = {one.offset: (one.status, one.left_out, one.reason) for one in feed.statuses()}
    outside = (Status.SKIPPED, True, "PACKHORSE_INCLUDE names nothing of it")
    excluded = (Status.SKIPPED, True, "PACKHORSE_EXCLUDE names /site/private")
    done = (Status.IMPORTED, False, "")
    assert [told[offset] for offset in offsets] == [outside, excluded, excluded, done, done]


def test_who_reads_what_is_left_out_is_not_idle_to_the_server(
    feed: Feed, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.path_filter = PathFilter(exclude=("/site/private",))
    pid, heard = worker.begin()._connection.info.backend_pid, list[Any]()
    monkeypatch.setattr(rows, "_UNHEARD_S", 0.0)
    watched = heard_at_each(effects.unpack, worker.url, pid, heard)
    monkeypatch.setattr(effects, "unpack", watched)
    feed.add(page("/site"), *(page(f"/site/private/{n}") for n in range(4)), deep=["/site"])
    worker.run()
    assert len({*heard}) == len(heard) == 5


def test_r14_what_is_left_out_and_bad_is_not_passed_over(feed: Feed, worker: Worker) -> None:
    worker.path_filter = PathFilter(exclude=("/private",))
    message = feed.message(Action.ADD, ["/private/../a"], (), [page("/private/a")])
    feed.append(message)
    worker.step_until_reported("'/private/../a'")


def test_r34_events_and_notifications_are_about_what_is_taken(
    feed: Feed, worker: Worker, listening: Connection
) -> None:
    worker.path_filter = PathFilter(("/site/a", "/site/b"), ("/site/a/x",))
    with psycopg.connect(worker.url) as connection:
        act_as(connection, BOOKKEEPER)
        add_watch(connection, ContentWatch("tests", ("/",)))
    feed.add(page("/site/a"), page("/site/a/x"), page("/other"))
    feed.add(page("/site"), page("/site/b"), deep=["/site"])
    feed.send(Action.INVALIDATE, "/site/a/x", "/site/a/y")
    feed.delete("/site")
    worker.run()
    told = rows_of(
        worker.url,
        "SELECT topic, properties -> 'paths', properties -> 'deep_paths' FROM jobs.event "
        "ORDER BY number",
    )
    assert [(topic.rpartition("/")[2], *paths) for topic, *paths in told] == [
        ("added", ["/site/a"], []),
        ("added", [], ["/site/b"]),
        ("changed", [], ["/site/a"]),
        ("invalidated", [], ["/site/a/y"]),
        ("removed", [], ["/site/a", "/site/b"]),
    ]
    [notified] = listening.notifies(timeout=120, stop_after=1)
    assert '"paths": ["/site/a/y"]' in notified.payload


def test_r35_events_and_notifications_name_own_paths(
    feed: Feed, worker: Worker, listening: Connection
) -> None:
    worker.path_filter = PathFilter(("/site",), (), (("/site/de", "/de"), ("/site/x/y", "/y/z")))
    with psycopg.connect(worker.url) as connection:
        act_as(connection, BOOKKEEPER)
        add_watch(connection, ContentWatch("tests", ("/",)))
    feed.add(page("/site/de/a"), page("/site/a"))
    feed.add(page("/site/de"), page("/site/de/b"), deep=["/site/de"])
    feed.send(Action.INVALIDATE, "/site/x")
    feed.delete("/site")
    worker.run()
    told = rows_of(
        worker.url,
        "SELECT topic, properties -> 'paths', properties -> 'deep_paths' FROM jobs.event "
        "ORDER BY number",
    )
    assert [(topic.rpartition("/")[2], *paths) for topic, *paths in told] == [
        ("added", ["/de/a", "/site/a"], []),
        ("changed", [], ["/de"]),
        ("invalidated", [], ["/site/x", "/y/z"]),
        ("removed", [], ["/site", "/de", "/y/z"]),
    ]
    [notified] = listening.notifies(timeout=120, stop_after=1)
    assert '"paths": ["/site/x", "/y/z"]' in notified.payload
    assert types(worker.url) == {}


def test_r14_a_package_whose_own_path_would_be_too_long_blocks(feed: Feed, worker: Worker) -> None:
    worker.path_filter = PathFilter(("/site",), (), (("/site/de", f"/{'d' * 2_000}"),))
    feed.add(page(f"/site/de/{'e' * 100}"))
    worker.step_until_reported("2048 are allowed")


@pytest.fixture
def listening(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("TRUNCATE jobs.content_watch, jobs.event, jobs.event_cursor, jobs.job")
        connection.execute("LISTEN packhorse_invalidate")
        yield connection


def test_r35_a_snapshot_is_loaded_through_the_filter(
    feed: Feed, database_url: str, workers: Workers, databases: Databases
) -> None:
    have(database_url, "/site/private/notes", "/site/old")
    feed.add(*(page(path) for path in ("/site", "/site/a", "/site/private", "/site/private/new")))
    feed.add(page("/other"), page("/site/deep/er/a"))
    other = workers(databases.new("complete"), name="complete")
    other.run()
    snapshot_of(other.url, feed)
    options = {"include": "/site/a,/site/deep/er,/site/private", "exclude": "/site/private"}
    with pytest.raises(ValueError, match="included and excluded"):
        running(feed, database_url, **options).__enter__()
    options["include"] = "/site/a,/site/deep/er"
    with joining(feed, database_url, **options) as subscriber:
        imported(subscriber, 1)
    assert types(database_url) == {
        **dict.fromkeys(("/site", "/site/deep", "/site/private"), "folder"),
        "/site/old": "page",
        "/site/a": "page",
        "/site/deep/er": "folder",
        "/site/deep/er/a": "page",
        "/site/private/notes": "page",
    }


def test_r35_a_snapshot_is_loaded_at_own_paths_without_what_is_left_out(
    feed: Feed, database_url: str, workers: Workers, databases: Databases
) -> None:
    have(database_url, "/de", "/de/old", "/site/de/stays", "/site/old", "/elsewhere")
    feed.add(
        *(page(path) for path in ("/site", "/site/de", "/site/de/x", "/site/a", "/site/de/x/y"))
    )
    other = workers(databases.new("complete"), name="complete")
    other.run()
    snapshot_of(other.url, feed)
    mapped = {"/site/de": "/de", "/site/de/x": "/far/away"}
    options = {"include": "/site", "map_paths": json.dumps(mapped), "exclude_properties": "vers*"}
    with joining(feed, database_url, **options) as subscriber:
        imported(subscriber, 0)
    assert types(database_url) == {
        **dict.fromkeys(("/site", "/site/a", "/de", "/far/away", "/far/away/y"), "page"),
        **dict.fromkeys(("/far", "/site/de"), "folder"),
        "/elsewhere": "page",
        "/site/de/stays": "page",
    }
    properties = {path: node[1] for path, node in content_of(database_url).items()}
    assert {properties[path] == {} for path in ("/site", "/de", "/far/away/y")} == {True}


def announced(feed: Feed, *paths: tuple[str, ...]) -> None:
    """Wait until the newest announcement has these paths to include and to exclude."""
    eventually(
        lambda: [(one.include, one.exclude) for one in feed.announcements()[-1:]] == [paths],
        f"{paths} is announced",
    )


def test_r35_a_filter_is_stored_before_it_holds_and_announced(
    feed: Feed, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "SELECT include, exclude FROM bookkeeping.content_filter"
    with running(feed, database_url) as subscriber:
        imported(subscriber, feed.add(page("/a"), page("/b")))
        announced(feed, (), ())
    assert rows_of(database_url, rows) == []
    with running(feed, database_url, include="/a", exclude="/a/x") as subscriber:
        imported(subscriber, feed.add(page("/a", 1), page("/b", 1), page("/a/x")))
        announced(feed, ("/a",), ("/a/x",))
    assert rows_of(database_url, rows) == [(["/a"], ["/a/x"])]
    assert "the filter has changed" in caplog.text
    found = content_of(database_url)
    assert {path: node[1] for path, node in found.items()} == {
        "/a": {"version": 1},
        "/b": {"version": 0},
    }
    caplog.clear()
    with running(feed, database_url, include="/a", exclude="/a/x") as subscriber:
        imported(subscriber, feed.add(page("/a", 2)))
    assert "the filter has changed" not in caplog.text
    with running(feed, database_url) as subscriber:
        imported(subscriber, feed.add(page("/b", 2)))
    assert rows_of(database_url, rows) == [([], [])]


def test_r25_who_lost_the_lease_stores_no_filter(feed: Feed, workers: Workers) -> None:
    worker = workers()
    epoch = worker.take_lease()
    with worker.connections.subscription() as connection:
        with pytest.raises(Fenced):
            store(connection, PathFilter(("/a",)), epoch=epoch - 1)
        store(connection, PathFilter(("/a",)), epoch=epoch)
