"""Back-off and excuses: how long, how often, and whose fault (R10)."""

import psycopg
import pytest

from packhorse.blobs.api import BlobMissing, BlobStoreUnavailable
from packhorse.packages.limits import PackageCorrupt
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.journal.failures import excused_tries, printable, reason


def test_r10_delays_begin_at_5_seconds_and_end_at_15_minutes() -> None:
    policy = RetryPolicy()
    delays = [policy.delay(failures) for failures in range(1, 12)]
    assert delays == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900, 900]
    assert policy.delay(10**9) == 900
    assert policy.outage_delay(10**9) == 30


@pytest.mark.parametrize(
    ("retries", "attempts", "over"),
    [(-1, 10**6, False), (0, 0, False), (0, 1, True), (2, 2, False), (2, 3, True)],
)
def test_r10_retries_come_after_the_first_attempt(retries: int, attempts: int, over: bool) -> None:
    assert RetryPolicy(retries).exhausted(attempts) is over


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("connection lost"),
        psycopg.InterfaceError("the connection is closed"),
        psycopg.errors.ConnectionException(),
        psycopg.errors.AdminShutdown(),
        psycopg.errors.DiskFull(),
        psycopg.errors.IoError(),
        psycopg.errors.IdleInTransactionSessionTimeout(),
        psycopg.errors.ReadOnlySqlTransaction(),
    ],
)
def test_a_database_that_is_away_is_not_the_packages_fault(error: psycopg.Error) -> None:
    assert excused_tries(error) == 10


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.CheckViolation(),
        psycopg.errors.StatementTooComplex(),
        psycopg.errors.InsufficientPrivilege(),
        psycopg.errors.QueryCanceled(),
        psycopg.DataError("NUL"),
        PackageCorrupt("bad"),
        MemoryError(),
        RecursionError(),
    ],
)
def test_r14_what_the_database_or_the_reader_refuses_is(error: Exception) -> None:
    assert excused_tries(error) == 0


def test_a_late_blob_is_excused_for_a_while_and_a_store_for_ever() -> None:
    assert excused_tries(BlobMissing("x")) == 3
    assert excused_tries(BlobStoreUnavailable("x")) > 10**9


@pytest.mark.parametrize(
    "error", [psycopg.errors.DeadlockDetected(), psycopg.errors.LockNotAvailable()]
)
def test_who_waits_for_another_subscription_is_excused_for_ever(error: psycopg.Error) -> None:
    assert excused_tries(error) > 10**9


def test_r30_reasons_are_one_bounded_line_that_postgres_can_hold() -> None:
    text = reason(ValueError("a\0b\n\tc " + "\ud800" + "x" * 10_000))
    assert text.startswith("ValueError: ab c ?x")
    assert len(text) == 1000
    assert printable("a\0\udfff", 10) == "a?"
    assert reason(PackageCorrupt("broken")) == "broken"
    assert reason(KeyError()) == "KeyError: no further reason"
