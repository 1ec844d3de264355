"""Where a subscription starts, and when it must not go on.

Gaps and other journals (R12, R13, R24).
"""

from collections.abc import Callable

import pytest

from packhorse.messaging.memory import MemoryJournal
from packhorse.wire.messages import SubscriptionState
from packhorse_services.subscriber.importing import subscription
from packhorse_services.subscriber.journal.failures import Gap, JournalMismatch
from packhorse_services.subscriber.journal.journal_check import StartPolicy
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.postgres import Databases
from tests.harness.subscriber import (
    Worker,
    assert_is_the_fold,
    content_of,
    position_of,
    rows_of,
)
from tests.harness.waiting import eventually
from tests.integration.subscriber.conftest import Workers
from tests.integration.subscriber.running import create_anew, gap, running


def truncate(feed: Feed, before: int) -> None:
    feed.journal.truncate(TOPICS.package, before)


def test_r13_a_new_subscriber_starts_at_the_earliest(feed: Feed, workers: Workers) -> None:
    for number in range(4):
        feed.add(page(f"/n{number}"))
    worker = workers(start=StartPolicy.EARLIEST)
    worker.run()
    assert len(content_of(worker.url)) == 4
    assert worker.session is not None
    assert not worker.session.position.incomplete


def test_r13_a_new_subscriber_starts_at_the_latest(feed: Feed, workers: Workers) -> None:
    feed.add(page("/before"))
    worker = workers(start=StartPolicy.LATEST)
    worker.begin()
    feed.add(page("/after"))
    worker.run()
    assert set(content_of(worker.url)) == {"/after"}


@pytest.mark.parametrize("start", [StartPolicy.EARLIEST, StartPolicy.OLDEST, StartPolicy.LATEST])
def test_r13_a_new_subscriber_starts_on_an_empty_log(
    feed: Feed, workers: Workers, start: StartPolicy
) -> None:
    worker = workers(start=start)
    worker.begin()
    assert position_of(worker.url).offset == -1
    feed.add(page("/a"))
    worker.run()
    worker.end()
    feed.add(page("/b"))
    worker.run()
    assert set(content_of(worker.url)) == {"/a", "/b"}


def test_r13_without_a_snapshot_a_new_subscription_does_not_begin(
    feed: Feed, workers: Workers
) -> None:
    feed.add(page("/a"))
    worker = workers(start=StartPolicy.SNAPSHOT)
    with pytest.raises(Gap, match="is to begin with a snapshot"):
        worker.begin()
    assert rows_of(worker.url, "SELECT FROM bookkeeping.position") == []


def test_r13_a_log_that_has_forgotten_the_next_package_is_a_gap(feed: Feed, worker: Worker) -> None:
    feed.add(page("/a"))
    worker.run()
    worker.end()
    for number in range(3):
        feed.add(page(f"/n{number}"))
    truncate(feed, 2)
    with pytest.raises(Gap, match="1 is to be imported next"):
        worker.begin()
    assert set(content_of(worker.url)) == {"/a"}


def test_r13_a_log_trimmed_up_to_the_position_is_none(feed: Feed, worker: Worker) -> None:
    last = [feed.add(page(f"/n{number}")) for number in range(3)][-1]
    worker.run()
    worker.end()
    truncate(feed, last + 1)
    worker.begin()
    feed.add(page("/more"))
    worker.run()
    assert len(content_of(worker.url)) == 4


def test_r13_a_log_is_looked_at_again_while_its_packages_are_tried(
    feed: Feed, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "_CHECK_JOURNAL_S", 0.0)
    feed.bad()
    feed.add(page("/a"))
    with running(feed, database_url) as subscriber:
        eventually(lambda: subscriber.reports[0].state.retries > 0, "it fails")
        truncate(feed, 2)
        gap(subscriber, "0 is to be imported next")


Harm = Callable[[Feed], None]


def truncated_at_the_end(feed: Feed) -> None:
    """A restored backup: the log's newest records never were."""
    assert isinstance(feed.journal, MemoryJournal)
    del feed.journal._log.topics[TOPICS.package].partitions[0].records[1:]


def restored_and_written_again(feed: Feed) -> None:
    truncated_at_the_end(feed)
    for number in range(5):
        feed.add(page(f"/other/{number}"))


def created_anew_and_written_again(feed: Feed) -> None:
    create_anew(feed)
    for number in range(5):
        feed.add(page(f"/other/{number}"))


@pytest.mark.parametrize(
    "harm", [truncated_at_the_end, restored_and_written_again, created_anew_and_written_again]
)
def test_r24_a_journal_with_other_records_at_its_offsets_is_not_followed(
    feed: Feed, worker: Worker, harm: Harm
) -> None:
    for number in range(3):
        feed.add(page(f"/n{number}"))
    worker.run()
    worker.end()
    before = content_of(worker.url)
    harm(feed)
    with pytest.raises(JournalMismatch):
        worker.begin()
    assert content_of(worker.url) == before


def test_r24_a_passed_over_record_is_recognised_too(feed: Feed, worker: Worker) -> None:
    feed.add(page("/a"))
    feed.add(page("/theirs"), agent="other")
    worker.run()
    worker.end()
    truncated_at_the_end(feed)
    feed.add(page("/new"))
    with pytest.raises(JournalMismatch):
        worker.begin()


def test_r12_a_copy_of_the_database_goes_on_from_its_offset(
    feed: Feed, workers: Workers, databases: Databases
) -> None:
    first = workers()
    feed.producer = "author"
    for number in range(10):
        feed.add(page(f"/n{number}"))
    first.run()
    first.send_statuses()
    first.die()
    copy = workers(url=databases.copy(first.url), name="copy")
    feed.add(page("/n3", 2))
    feed.delete("/n4")
    copy.begin()
    assert copy.session is not None
    assert copy.session.position.offset == 9
    copy.run()
    copy.send_statuses()
    first.run()
    first.send_statuses()
    assert_is_the_fold(copy.url, feed)
    assert content_of(copy.url) == content_of(first.url)
    reported = sorted((status.subscriber, status.offset) for status in feed.statuses())
    assert reported == [("copy", 10), ("copy", 11), *(("sub", offset) for offset in range(12))]


def test_r12_a_copy_keeps_the_attempts_and_not_the_commands_of_its_source(
    feed: Feed, workers: Workers, databases: Databases
) -> None:
    first = workers()
    feed.bad()
    first.step_until_failed(4)
    first.die()
    copy = workers(url=databases.copy(first.url), name="copy")
    copy.step_until_failed(5)
    assert copy.report.state.state is SubscriptionState.BLOCKED
