"""Numbers that repeat, and numbers that no publisher gave (R27, R31)."""

from dataclasses import replace

import pytest

from packhorse.wire.messages import Action, Status
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.journal.sequences import MOST_SKIPPED
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.subscriber import Worker, content_of, failed, rows_of
from tests.integration.subscriber.conftest import Workers


@pytest.fixture
def numbered(feed: Feed) -> Feed:
    feed.producer = "author"
    return feed


def forge(feed: Feed, sequence: int, action: Action = Action.TEST) -> int:
    """Append a package under a number of the publisher's, as who can write to the journal might."""
    message = feed.message(action, ["/forged"], (), None)
    feed.sequence -= 1
    return feed.append(replace(message, entry=replace(message.entry, sequence=sequence)))


def reported(feed: Feed, worker: Worker) -> dict[int, Status]:
    worker.send_statuses()
    return {status.offset: status.status for status in feed.statuses()}


@pytest.mark.parametrize("editable", [True, False])
def test_r31_a_repeat_is_reported_as_a_duplicate_and_never_as_imported(
    numbered: Feed, workers: Workers, editable: bool
) -> None:
    worker = workers(editable=editable)
    first = numbered.add(page("/a"))
    numbered.sequence -= 1
    repeat = numbered.add(page("/b"))  # another package under the same number
    last = numbered.add(page("/c"))
    worker.run()
    assert set(content_of(worker.url)) == {"/a", "/c"}
    imported = {first: Status.IMPORTED, last: Status.IMPORTED} if editable else {}
    assert reported(numbered, worker) == {repeat: Status.DUPLICATE, **imported}


def test_r31_a_second_copy_of_what_was_imported_is_no_duplicate(
    numbered: Feed, worker: Worker
) -> None:
    message = numbered.message(Action.ADD, ["/a"], (), [page("/a")])
    first = numbered.append(message)
    worker.run()
    numbered.journal.truncate(TOPICS.package, 1)  # what this session has imported it knows
    second, third = numbered.append(message), numbered.append(message)
    worker.run()
    assert Status.DUPLICATE not in reported(numbered, worker).values()
    assert (first, second, third) == (0, 1, 2)


@pytest.mark.parametrize("editable", [True, False])
def test_r31_nor_is_one_that_comes_after_a_restart(
    numbered: Feed, workers: Workers, editable: bool
) -> None:
    before = workers(editable=editable)
    imported, cleared = (numbered.message(Action.ADD, [p], (), [page(p)]) for p in ("/a", "/b"))
    numbered.append(imported)
    before.run()
    before.clear(numbered.append(cleared))
    before.run()
    before.die()
    after = workers(editable=editable)
    numbered.append(imported)
    duplicate = numbered.append(cleared)
    after.run()
    became = reported(numbered, after)
    assert [offset for offset in became if became[offset] is Status.DUPLICATE] == [duplicate]


def test_r27_a_sequence_that_no_publisher_gave_stops_the_subscription_with_a_reason(
    numbered: Feed, workers: Workers
) -> None:
    worker = workers(policy=RetryPolicy(-1, 0.0, 0.0))
    numbered.add(page("/a"))
    forged = forge(numbered, 2**53 - 1)
    behind = [numbered.add(page("/b")), numbered.add(page("/c"))]
    worker.step_until_failed(3)
    state = worker.report.state
    assert (state.state.name, state.offset) == ("BLOCKED", 0)
    assert "no publisher's" in state.last_error
    worker.clear(forged)
    worker.run()
    assert set(content_of(worker.url)) == {"/a", "/b", "/c"}
    statuses = reported(numbered, worker)
    assert statuses[forged] is Status.REMOVED
    assert {statuses[offset] for offset in behind} == {Status.IMPORTED}


def test_r27_one_that_is_given_up_does_not_take_the_others_with_it(
    numbered: Feed, workers: Workers
) -> None:
    worker = workers(policy=RetryPolicy(0, 0.0, 0.0))
    numbered.add(page("/a"))
    forged = [forge(numbered, 2**53 - 1), forge(numbered, 2**53 - 2)]
    numbered.add(page("/b"))
    worker.run()
    assert failed(worker, numbered) == [(offset, 1) for offset in forged]
    assert set(content_of(worker.url)) == {"/a", "/b"}


def test_r27_who_clears_an_impossible_number_lets_the_next_be_any(
    numbered: Feed, worker: Worker
) -> None:
    numbered.add(page("/a"))
    numbered.sequence += 2 * MOST_SKIPPED  # the log has lost packages
    lost = numbered.add(page("/b"))
    numbered.add(page("/c"))
    worker.step_until_reported("no publisher's")
    worker.clear(lost)
    worker.run()
    assert set(content_of(worker.url)) == {"/a", "/c"}


def test_r27_numbers_that_a_publisher_gave_anew_are_no_obstacle(
    numbered: Feed, worker: Worker
) -> None:
    """Packages that waited for a journal were numbered again behind the last number."""
    numbered.add(page("/a"))
    numbered.sequence += MOST_SKIPPED
    numbered.add(page("/b"))
    worker.run()
    worker.end()  # the same after a restart, from what the database knows
    numbered.sequence += MOST_SKIPPED
    numbered.add(page("/c"))
    worker.run()
    assert set(content_of(worker.url)) == {"/a", "/b", "/c"}
    numbered.sequence += MOST_SKIPPED + 1
    numbered.add(page("/d"))
    worker.step_until_reported("no publisher's")
    assert rows_of(worker.url, "SELECT sequence FROM bookkeeping.applied_sequence") == [
        (2 * MOST_SKIPPED + 3,)
    ]
