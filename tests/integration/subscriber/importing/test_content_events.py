"""Imports record their events in the same transaction, for whoever watches (R34)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from packhorse.content import tree
from packhorse.content.node import Node
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.content_changes.watches import (
    MOST_WATCHES,
    ContentWatch,
    InvalidWatch,
    add_watch,
    list_watches,
    remove_watch,
)
from packhorse.wire.messages import Action
from tests.harness.feed import Feed, page
from tests.harness.jobs.events import Instance
from tests.harness.subscriber import Worker, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.conftest import Workers

_EVENTS = (
    "SELECT topic, properties FROM jobs.event WHERE topic ^@ 'packhorse/content/' ORDER BY number"
)


@pytest.fixture(autouse=True)
def nobody_watches(database_url: str) -> Iterator[None]:
    with psycopg.connect(database_url) as connection:
        connection.execute("TRUNCATE jobs.content_watch, jobs.event, jobs.event_cursor, jobs.job")
    return


@contextmanager
def session(url: str) -> Iterator[Connection]:
    """Give a transaction as the bookkeeper."""
    with psycopg.connect(url) as connection:
        act_as(connection, BOOKKEEPER)
        yield connection


def watch(url: str, *roots: str, name: str = "tests", job_topic: str | None = None) -> None:
    with session(url) as connection:
        add_watch(connection, ContentWatch(name, roots or ("/",), job_topic))


def events(worker: Worker) -> list[tuple[str, list[str], list[str]]]:
    return [
        (topic.removeprefix("packhorse/content/"), said["paths"], said["deep_paths"])
        for topic, said in rows_of(worker.url, _EVENTS)
    ]


def test_nothing_is_stored_while_nobody_watches(feed: Feed, worker: Worker) -> None:
    feed.add(page("/site/a"))
    worker.run()
    assert events(worker) == []


def test_r34_an_import_says_what_has_happened_to_which_nodes(feed: Feed, worker: Worker) -> None:
    watch(worker.url, "/site")
    feed.add(page("/site/a"))
    feed.add(page("/elsewhere"))
    worker.run()
    feed.add(page("/site/a", 2), page("/site/b"))
    feed.add(page("/site/deep"), page("/site/deep/c"), deep=["/site/deep"])
    feed.delete("/site/a")
    feed.send(Action.INVALIDATE, "/site/b")
    feed.send(Action.TEST)
    worker.run()
    assert events(worker) == [
        ("added", ["/site/a"], []),
        ("added", ["/site/b"], []),
        ("changed", ["/site/a"], []),
        ("added", [], ["/site/deep"]),
        ("removed", [], ["/site/a"]),
        ("invalidated", [], ["/site/b"]),
    ]
    [(_, said), *_] = rows_of(worker.url, _EVENTS)
    assert said["subscriber"] == "sub"
    assert (said["publisher_agent"], said["user"]) == ("main", "tester")
    assert said["package_id"].startswith("dstrpck-")


def test_a_watch_of_types_hears_of_its_nodes_and_of_subtrees_with_some(
    feed: Feed, worker: Worker
) -> None:
    with session(worker.url) as connection:
        add_watch(connection, ContentWatch("pages", ["/site"], "page/seen", ["page"]))
        add_watch(connection, ContentWatch("images", ["/site"], "image/seen", ["image"]))
    feed.add(page("/site/a"))
    feed.add(page("/site/deep"), page("/site/deep/c"), deep=["/site/deep"])
    feed.send(Action.INVALIDATE, "/site/a")
    worker.run()
    feed.delete("/site/a")
    worker.run()
    assert events(worker) == [
        ("added", ["/site/a"], []),
        ("added", [], ["/site/deep"]),
        ("invalidated", [], ["/site/a"]),
        ("removed", [], ["/site/a"]),
        ("removed", [], ["/site/a"]),
    ]
    watching = [said["watch"] for _, said in rows_of(worker.url, _EVENTS)]
    assert watching == ["pages", "pages", "pages", "images", "pages"]
    jobs = rows_of(worker.url, "SELECT topic, properties ->> 'change' FROM jobs.job")
    assert ("image/seen", "removed") in jobs
    assert len(jobs) == 5


def test_r34_a_watch_of_types_hears_what_was_replaced(feed: Feed, worker: Worker) -> None:
    feed.add(Node("/one", "image"))
    feed.add(page("/dam/x"), Node("/dam/x/pic", "image"), deep=["/dam/x"])
    feed.add(page("/page"))
    worker.run()
    with session(worker.url) as connection:
        add_watch(connection, ContentWatch("images", ["/"], "image/seen", ["image"]))
    feed.add(page("/one"))
    feed.add(page("/dam/x"), deep=["/dam/x"])
    feed.add(page("/one", 2))
    feed.add(page("/page", 2))
    worker.run()
    assert events(worker) == [("changed", ["/one"], []), ("changed", [], ["/dam/x"])]
    assert len(rows_of(worker.url, "SELECT FROM jobs.job")) == 2


def test_a_group_is_asked_about_types_once(
    feed: Feed, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    present = tree.present

    def counted(connection: Connection, paths: Sequence[str]) -> dict[str, str]:
        asked.append(len(paths))
        return present(connection, paths)

    monkeypatch.setattr(tree, "present", counted)
    with session(worker.url) as connection:
        for number in range(3):
            add_watch(connection, ContentWatch(f"w{number}", types=["page"]))
    for number in range(5):
        feed.add(page(f"/p{number}"))
    worker.run()
    assert sum(asked) == 10, "each group before it is applied, and after that for all watches"
    assert len(events(worker)) == 15


def test_a_group_that_fails_leaves_no_event_of_it(feed: Feed, worker: Worker) -> None:
    watch(worker.url)
    feed.add(page("/a"))
    feed.bad("/bad")
    feed.add(page("/b"))
    worker.begin()
    worker.step_until_failed(2)
    assert events(worker) == [("added", ["/a"], [])], "once, and nothing of what was rolled back"


def test_r34_every_instance_hears_an_import_once_also_after_it_was_away(
    feed: Feed, worker: Worker
) -> None:
    watch(worker.url)
    with Instance(worker.url, "one").running() as one, Instance(worker.url, "two").running() as two:
        feed.add(page("/a"))
        worker.run()
        eventually(lambda: len(one.heard) == len(two.heard) == 1)
    feed.add(page("/b"))
    worker.run()
    again = Instance(worker.url, "one")
    with again.running():
        assert [event.properties["paths"] for event in again.heard] == [["/b"]]


def test_a_watch_makes_jobs_in_the_same_transaction(feed: Feed, worker: Worker) -> None:
    watch(worker.url, "/images", name="thumbnails", job_topic="images/thumbnail")
    watch(worker.url, "/site", name="site")
    feed.add(page("/images/a"))
    feed.add(page("/site/a"))
    worker.run()
    jobs: list[Any] = rows_of(worker.url, "SELECT topic, properties FROM jobs.job")
    [(topic, said)] = jobs
    assert topic == "images/thumbnail"
    assert (said["change"], said["paths"]) == ("added", ["/images/a"])
    assert len(events(worker)) == 2


def test_a_large_package_is_reported_of_in_several_events(feed: Feed, worker: Worker) -> None:
    watch(worker.url)
    feed.add(*(page(f"/p{number:03}") for number in range(250)))
    worker.run()
    reported = events(worker)
    assert [len(paths) for _, paths, _ in reported] == [100, 100, 50]
    assert len({path for _, paths, _ in reported for path in paths}) == 250


def test_what_a_subtree_brings_and_takes_is_known_to_the_packages_after_it(
    feed: Feed, worker: Worker
) -> None:
    feed.add(page("/a/gone"))
    worker.run()
    watch(worker.url)
    feed.add(page("/other/x"))
    feed.add(page("/a"), page("/a/new"), deep=["/a"])
    feed.add(page("/a/gone"))
    feed.add(page("/a/new"))
    feed.add(page("/other"))
    worker.run()
    assert events(worker) == [
        ("added", ["/other/x"], []),
        ("changed", [], ["/a"]),
        ("added", ["/a/gone"], []),
        ("changed", ["/a/new"], []),
        ("changed", ["/other"], []),
    ]


@pytest.mark.parametrize("user", ["u" * 70_000, "a\0b"])
def test_r30_no_text_of_a_package_makes_its_event_impossible(
    feed: Feed, worker: Worker, user: str
) -> None:
    watch(worker.url)
    message = feed.message(Action.ADD, ["/a"], (), [page("/a")])
    feed.append(replace(message, entry=replace(message.entry, user=user)))
    worker.run()
    assert events(worker) == [("added", ["/a"], [])]


def test_a_worker_that_is_replaced_leaves_no_event(feed: Feed, workers: Workers) -> None:
    first, second = workers(), workers()
    watch(first.url)
    first.begin()
    first.die()
    second.begin()
    feed.add(page("/a"))
    second.run()
    assert events(second) == [("added", ["/a"], [])]


def test_watches_are_listed_replaced_and_removed(database_url: str) -> None:
    watch(database_url, "/a")
    watch(database_url, "/b", name="tests")
    with session(database_url) as connection:
        assert list_watches(connection) == [ContentWatch("tests", ["/b"])]
        assert remove_watch(connection, "tests")
        assert not remove_watch(connection, "tests")


def test_watches_are_bounded(database_url: str) -> None:
    with session(database_url) as connection:
        for number in range(MOST_WATCHES):
            add_watch(connection, ContentWatch(f"w{number}"))
        with pytest.raises(InvalidWatch, match="remove one"):
            add_watch(connection, ContentWatch("more"))
        add_watch(connection, ContentWatch("w0", ["/other"]))
        with pytest.raises(InvalidWatch, match="roots"):
            add_watch(connection, ContentWatch("w0", []))
