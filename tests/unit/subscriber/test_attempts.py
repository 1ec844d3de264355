"""Tries of the package in front: what is counted, waited for and taken up again (R10, R20)."""

from collections.abc import Callable

import pytest

from packhorse.blobs.api import BlobMissing, BlobStoreUnavailable
from packhorse.packages.limits import PackageCorrupt
from packhorse_services.subscriber.importing.attempts import Attempts, RetryPolicy
from packhorse_services.subscriber.journal.arrivals import Mark
from tests.harness.clock import ManualClock
from tests.unit.subscriber.given_rows import GivenRows

FIRST, SECOND, THIRD = Mark(0, "first"), Mark(1, "second"), Mark(2, "third")
OWN, LATE, OUTAGE = PackageCorrupt("bad"), BlobMissing("late"), BlobStoreUnavailable("away")


def lazy(taken: GivenRows) -> list[bool]:
    """Return of each statement whether it lets the commit not wait for the disk."""
    return ["synchronous_commit = off" in one for one in taken.statements]


def stored(mark: Mark, attempts: int, error: str = "", alone_until: int = -1) -> GivenRows:
    return GivenRows((mark.offset, mark.package_id, attempts, error, 0, alone_until))


Resume = Callable[..., None]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def attempts(clock: ManualClock) -> Attempts:
    return Attempts("main", RetryPolicy(), clock)


@pytest.fixture
def resume(attempts: Attempts) -> Resume:
    """Begins a session of the subscription, behind `passed`."""

    def begin(row: GivenRows, passed: int = -1, epoch: int = 1) -> None:
        attempts.resume(row.connection, Mark(passed, ""), epoch)

    return begin


def test_r10_who_has_lost_the_lease_goes_on_from_what_the_other_worker_counted(
    attempts: Attempts, resume: Resume
) -> None:
    resume(GivenRows())
    attempts.failed(FIRST, OWN, counted=False)
    resume(stored(FIRST, 0))
    assert attempts.head(FIRST).attempts == 1, "while the lease was not lost it knows better"
    resume(stored(FIRST, 4, "bad"), epoch=2)
    assert attempts.head(FIRST).attempts == 4


def test_r10_the_first_package_after_a_start_or_with_a_new_lease_is_tried_alone(
    attempts: Attempts, resume: Resume
) -> None:
    resume(stored(FIRST, 0, alone_until=FIRST.offset), passed=FIRST.offset)
    assert attempts.alone(SECOND)
    assert not attempts.alone(THIRD)
    resume(GivenRows(), passed=SECOND.offset, epoch=2)
    assert attempts.alone(THIRD)


def test_r10_a_package_that_has_failed_is_tried_alone_so_that_its_tries_are_counted_before(
    attempts: Attempts, resume: Resume
) -> None:
    resume(GivenRows())
    assert attempts.alone(FIRST)
    assert not attempts.alone(SECOND)
    attempts.failed(SECOND, OWN, counted=False)
    assert attempts.alone(SECOND)


def test_r10_packages_up_to_the_last_of_a_group_that_failed_are_tried_alone(
    attempts: Attempts, resume: Resume
) -> None:
    resume(GivenRows())
    assert attempts.alone(FIRST)
    attempts.group_failed(SECOND)
    assert attempts.alone(SECOND)
    assert not attempts.alone(THIRD)


def test_r10_what_is_counted_is_on_disk_before_the_try_and_a_groups_intent_need_not_be(
    attempts: Attempts, clock: ManualClock
) -> None:
    group, alone = GivenRows(), GivenRows()
    attempts.begin_group(group.connection, FIRST, THIRD)
    assert lazy(group) == [True, False]
    assert group.row == ("main", 0, "first", 0, "", 0, THIRD.offset)
    attempts.group_failed(THIRD)
    attempts.begin_alone(alone.connection, FIRST)
    assert lazy(alone) == [False]
    killed = "attempt 1 ended with the worker that made it"
    assert alone.row == ("main", 0, "first", 1, killed, clock.wall_ms(), THIRD.offset)
    attempts.failed(FIRST, OUTAGE, counted=True)
    attempts.save(alone.connection)
    assert lazy(alone) == [False, False]


def test_nothing_of_one_package_is_held_against_the_next(attempts: Attempts) -> None:
    for _ in range(3):
        attempts.failed(FIRST, LATE, counted=False)
    assert attempts.failed(FIRST, LATE, counted=False), "the fourth is the package's own"
    for _ in range(3):
        attempts.failed(FIRST, LATE, counted=False)
    assert attempts.wait_s(FIRST) > 0
    assert attempts.wait_s(SECOND) == 0
    assert attempts.head(SECOND).attempts == 0
    assert not attempts.failed(SECOND, LATE, counted=False)


def test_r10_a_package_that_another_worker_tried_is_not_held_to_what_was_in_front_before(
    attempts: Attempts, resume: Resume
) -> None:
    resume(GivenRows())
    attempts.retry_after(FIRST, "")
    for _ in range(2):
        attempts.failed(FIRST, OWN, counted=False)
    attempts.retry_after(FIRST, "retry")
    for _ in range(3):
        attempts.failed(FIRST, LATE, counted=False)
    resume(stored(SECOND, 1, "bad"), passed=FIRST.offset, epoch=2)
    assert not attempts.failed(SECOND, LATE, counted=False)
    attempts.failed(SECOND, OWN, counted=False)
    assert attempts.wait_s(SECOND) == 10


def test_r10_another_package_at_the_offset_inherits_nothing(attempts: Attempts) -> None:
    """As in a log that was cut and written again."""
    another = Mark(FIRST.offset, "another")
    attempts.retry_after(FIRST, "")
    for _ in range(3):
        attempts.failed(FIRST, OWN, counted=False)
    attempts.retry_after(FIRST, "retry")
    assert attempts.head(another).attempts == 0
    attempts.failed(another, OWN, counted=False)
    assert attempts.wait_s(another) == 5


def test_a_package_that_was_imported_after_all_is_in_front_no_more(
    attempts: Attempts, resume: Resume
) -> None:
    resume(GivenRows())
    attempts.failed(FIRST, OWN, counted=False)
    resume(stored(SECOND, 2, "bad"), passed=FIRST.offset)
    assert attempts.head(SECOND).attempts == 2


def test_excuses_count_in_a_row(attempts: Attempts) -> None:
    for _ in range(2):
        attempts.failed(FIRST, LATE, counted=False)
    attempts.failed(FIRST, OWN, counted=False)
    assert not any(attempts.failed(FIRST, LATE, counted=False) for _ in range(3))
    assert attempts.head(FIRST).attempts == 1


def test_it_is_blocked_since_its_first_failure(attempts: Attempts, clock: ManualClock) -> None:
    began = clock.wall_ms()
    attempts.failed(FIRST, OUTAGE, counted=False)
    clock.advance(60)
    written = GivenRows()
    attempts.begin_alone(written.connection, FIRST)
    assert began in written.row
    attempts.failed(FIRST, OWN, counted=False)
    assert attempts.head(FIRST).blocked_since_ms == began


def test_r10_after_a_start_it_is_waited_for_whatever_was_commanded_before(
    attempts: Attempts, resume: Resume
) -> None:
    resume(stored(FIRST, 3, "bad"))
    attempts.retry_after(FIRST, "a command of before")
    assert attempts.wait_s(FIRST) == 5


@pytest.mark.parametrize(("error", "longest"), [(OWN, 40), (OUTAGE, 30)])
def test_r20_a_retry_begins_the_back_off_anew(
    attempts: Attempts, error: Exception, longest: float
) -> None:
    attempts.retry_after(FIRST, "")
    for _ in range(4):
        attempts.failed(FIRST, error, counted=False)
    assert attempts.wait_s(FIRST) == longest
    attempts.retry_after(FIRST, "retry")
    assert attempts.wait_s(FIRST) == 0
    attempts.failed(FIRST, error, counted=False)
    assert attempts.wait_s(FIRST) == 5


def test_r20_what_a_retry_began_anew_goes_on_through_other_failures(attempts: Attempts) -> None:
    attempts.retry_after(FIRST, "")
    for _ in range(3):
        attempts.failed(FIRST, OWN, counted=False)
    for _ in range(2):
        attempts.failed(FIRST, OUTAGE, counted=False)
    attempts.retry_after(FIRST, "retry")
    attempts.failed(FIRST, OWN, counted=False)
    assert attempts.wait_s(FIRST) == 5
    attempts.failed(FIRST, OUTAGE, counted=False)
    assert attempts.wait_s(FIRST) == 5
    attempts.failed(FIRST, OWN, counted=False)
    assert attempts.wait_s(FIRST) == 10
