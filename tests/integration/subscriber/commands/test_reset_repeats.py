"""What repeats an earlier package is known as a repetition after a reset too (R27)."""

import uuid

import pytest

from packhorse.wire.messages import Action, CommandState
from tests.harness.commands import following, reset
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.postgres import Databases
from tests.harness.subscriber import Worker, assert_is_the_fold, content_of, position_of, tamper
from tests.integration.subscriber.conftest import Workers


@pytest.fixture(params=["memory", "sql"])
def journal_url(request: pytest.FixtureRequest, databases: Databases) -> str:
    """Each test on the journal in memory and on the one in SQL."""
    return databases.new("journal") if request.param == "sql" else f"memory://{uuid.uuid4()}"


def test_r27_what_is_a_repetition_stays_one_after_a_reset(feed: Feed, worker: Worker) -> None:
    feed.producer = "author"
    feed.add(page("/a", 1))
    record = feed.records()[0]
    middle = feed.add(page("/a", 2))
    feed.raw(record.value, dict(record.headers))
    with following(worker) as follower:
        worker.run()
        reset(follower, feed, middle)
        worker.run()
    assert content_of(worker.url)["/a"][1] == {"version": 2}
    assert_is_the_fold(worker.url, feed)


def test_r27_a_repetition_stays_one_though_its_first_has_left_the_log(
    feed: Feed, worker: Worker
) -> None:
    feed.producer = "author"
    message = feed.message(Action.ADD, ["/a"], (), [page("/a", 1)])
    feed.append(message)
    feed.producer = "writer"
    feed.sequence = 0
    feed.add(page("/a", 2))
    middle = feed.add(page("/c", 2))
    feed.append(message)
    with following(worker) as follower:
        worker.run()
        feed.journal.truncate(TOPICS.package, 1)
        assert reset(follower, feed, middle)[0] is CommandState.APPLIED
        worker.run()
        assert content_of(worker.url)["/a"][1] == {"version": 2}
        again = feed.add(page("/d"))
        assert reset(follower, feed, 0)[0] is CommandState.APPLIED
        tamper(worker.url)
        worker.run()
    assert position_of(worker.url).offset == again
    assert set(content_of(worker.url)) == {"/a", "/c", "/d"}, "what is behind it comes again"
    assert content_of(worker.url)["/a"][1] == {"version": 2}


def test_r27_a_reset_forward_forgets_no_producer(feed: Feed, worker: Worker) -> None:
    feed.producer = "author"
    message = feed.message(Action.ADD, ["/a"], (), [page("/a", 1)])
    old = feed.append(message)
    newest = feed.message(Action.ADD, ["/a"], (), [page("/a", 2)])
    feed.append(newest)
    with following(worker) as follower:
        worker.run()
        forward = feed.append(message)  # by itself it would be the author's highest
        feed.journal.truncate(TOPICS.package, forward)
        assert reset(follower, feed, forward)[0] is CommandState.APPLIED
        feed.append(newest)
        worker.run()
    worker.send_statuses()
    assert [status.offset for status in feed.statuses()] == [old, old + 1]


def test_r27_an_id_that_is_remembered_is_known_after_a_reset(feed: Feed, workers: Workers) -> None:
    feed.producer = "author"
    message = feed.message(Action.ADD, ["/a"], (), [page("/a", 1)])
    feed.append(message)
    middle = feed.add(page("/a", 2))
    feed.append(feed.renumbered(message))
    worker = workers(remember_h=1.0)
    with following(worker, remembers=True) as follower:
        worker.run()
        assert reset(follower, feed, middle)[0] is CommandState.APPLIED
        worker.run()
    assert content_of(worker.url)["/a"][1] == {"version": 2}
