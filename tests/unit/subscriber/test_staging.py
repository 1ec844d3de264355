"""What may be done with a package, given what the golden subscriber reports about it."""

from dataclasses import replace

import pytest

from packhorse.messaging.api import Record
from packhorse.wire.messages import (
    Action,
    DiscoveryMessage,
    Status,
    SubscriptionState,
)
from packhorse.wire.package_codec import ENTRY_HEADER
from packhorse_services.subscriber.journal.arrivals import Arrival, Mark
from packhorse_services.subscriber.staging.staging import Staging, StagingVerdict
from tests.harness.clock import ManualClock
from tests.harness.staging import START, announcement, arrival, read, status

REFUSALS = (Status.REMOVED, Status.REMOVED_FAILED, Status.SKIPPED)


def verdicts(staging: Staging, *offsets: int) -> list[StagingVerdict]:
    return [staging.ruling(START, arrival(offset)).verdict for offset in offsets]


def test_imported_is_accepted_and_each_refusal_is_skipped() -> None:
    staging = Staging("golden")
    read(staging, *(status(n, became) for n, became in enumerate([*REFUSALS, Status.IMPORTED])))
    assert verdicts(staging, 0, 1, 2, 3) == [StagingVerdict.SKIP] * 3 + [StagingVerdict.ACCEPT]


def test_r35_a_package_that_is_not_for_the_golden_one_waits_for_nobody() -> None:
    staging = Staging("golden")
    read(staging, status(0, Status.SKIPPED, left_out=True))
    assert staging.ruling(START, arrival(0, targets=("late",))).verdict is StagingVerdict.ACCEPT
    assert staging.ruling(START, arrival(1, targets=("late",))).verdict is StagingVerdict.ACCEPT
    both = arrival(1, targets=("late", "golden"))
    assert staging.ruling(START, both).verdict is StagingVerdict.WAIT


def test_r35_what_the_golden_one_leaves_out_waits_for_nobody() -> None:
    staging = Staging("golden")
    read(staging, status(0, Status.SKIPPED, left_out=True, reason="PACKHORSE_EXCLUDE names /a"))
    assert staging.ruling(START, arrival(0)).verdict is StagingVerdict.ACCEPT


def test_a_skip_names_the_golden_one_and_what_it_did() -> None:
    staging = Staging("golden")
    read(staging, status(0, Status.REMOVED_FAILED, reason="a bad\0 node"))
    assert staging.ruling(START, arrival(0)).reason == "golden reported REMOVED_FAILED: a bad node"


@pytest.mark.parametrize(
    "other",
    [{"publisher_agent": "other"}, {"journal_id": "another"}, {"journal_id": ""}, {"offset": 1}],
)
def test_a_status_of_another_agent_journal_or_offset_decides_nothing(
    other: dict[str, object],
) -> None:
    staging = Staging("golden")
    read(staging, replace(status(0, Status.IMPORTED), **other), said=announcement(-1))  # type: ignore[arg-type]
    ruling = staging.ruling(START, arrival(0))
    assert (ruling.verdict, ruling.reason) == (
        StagingVerdict.WAIT,
        "waits for golden to import offset 0",
    )


@pytest.mark.parametrize("became", Status)
def test_r24_a_status_of_another_package_at_the_offset_decides_nothing(became: Status) -> None:
    """After a truncation, or from a backup, offsets are used again under the same identity."""
    staging = Staging("golden")
    read(staging, status(0, became, package_id="x"), said=announcement(5))
    ruling = staging.ruling(START, arrival(0, package_id="y"))
    assert ruling.verdict is StagingVerdict.WAIT
    assert f"golden reported {became.value} of another package at 0" in ruling.reason
    staging.status(status(0, Status.IMPORTED, package_id="y"))
    assert staging.ruling(START, arrival(0, package_id="y")).verdict is StagingVerdict.ACCEPT


@pytest.mark.parametrize("state", [SubscriptionState.JOURNAL_MISMATCH, SubscriptionState.GAP])
def test_r24_nothing_is_taken_from_a_golden_one_that_has_lost_the_journal(
    state: SubscriptionState,
) -> None:
    staging = Staging("golden")
    reported = [status(0, Status.IMPORTED), status(1, Status.REMOVED)]
    lost = announcement(5, state=state, last_error="the record is another")
    read(staging, *reported, said=lost)
    assert verdicts(staging, 0, 1, 2) == [StagingVerdict.WAIT] * 3
    reason = staging.ruling(START, arrival(0)).reason
    assert reason == f"waits for golden, which is {state.value}: the record is another"
    staging.announced(announcement(5))
    assert verdicts(staging, 0, 1) == [StagingVerdict.ACCEPT, StagingVerdict.SKIP]


def test_r24_silence_proves_nothing_of_a_log_that_was_cut_and_written_again() -> None:
    """The golden one is away, or has not noticed: its last announcement is of the log before."""
    log: dict[int, str] = {5: "p5"}
    staging = Staging("golden", package_at=log.get)
    read(staging, status(4, Status.IMPORTED), said=announcement(5, package_id="p5"))
    assert verdicts(staging, 3, 4) == [StagingVerdict.ACCEPT] * 2
    log[5] = "another"
    assert verdicts(staging, 3, 4) == [StagingVerdict.WAIT, StagingVerdict.ACCEPT]
    reason = staging.ruling(START, arrival(3)).reason
    assert reason == "waits for golden, whose last package p5 is not at offset 5 of this journal"
    del log[5]
    assert verdicts(staging, 3) == [StagingVerdict.WAIT]
    staging.announced(announcement(5, package_id="another"))
    log[5] = "another"
    assert verdicts(staging, 3) == [StagingVerdict.ACCEPT]
    staging.announced(announcement(5))  # without a package
    assert verdicts(staging, 3) == [StagingVerdict.ACCEPT]


def test_the_last_status_in_the_topic_counts() -> None:
    staging = Staging("golden")
    read(staging, status(0, Status.IMPORTED), status(0, Status.REMOVED))
    assert verdicts(staging, 0) == [StagingVerdict.SKIP]
    staging.status(status(0, Status.IMPORTED))
    assert verdicts(staging, 0) == [StagingVerdict.ACCEPT]


def test_nothing_is_decided_before_the_topic_is_read_to_its_end() -> None:
    staging = Staging("golden")
    staging.ruling(START, arrival(0))
    staging.status(status(0, Status.IMPORTED))
    assert verdicts(staging, 0) == [StagingVerdict.WAIT]
    staging.read_to_end(staging.wanted() - 1, None)  # an older reading
    assert verdicts(staging, 0) == [StagingVerdict.WAIT]
    staging.read_to_end(staging.wanted(), None)
    assert verdicts(staging, 0) == [StagingVerdict.ACCEPT]


def test_r14_a_package_that_cannot_be_read_waits_like_any_other() -> None:
    staging = Staging("golden")
    read(staging, said=announcement(-1))
    headers = {ENTRY_HEADER: b"\xff\xff"}
    unreadable = Arrival(Mark(0, ""), Record("package", 0, 0, 1_000, None, headers, b""))
    assert staging.ruling(START, unreadable).verdict is StagingVerdict.WAIT


def test_a_test_package_waits_for_nobody() -> None:
    staging = Staging("golden")
    assert staging.ruling(START, arrival(0, action=Action.TEST)).verdict is StagingVerdict.ACCEPT


def test_a_higher_status_alone_is_no_success() -> None:
    staging = Staging("golden")
    read(staging, status(1, Status.IMPORTED), said=announcement(-1))
    assert verdicts(staging, 0, 1) == [StagingVerdict.WAIT, StagingVerdict.ACCEPT]


def test_what_the_golden_one_passed_without_a_word_is_accepted_once_that_is_certain() -> None:
    staging = Staging("golden")
    read(staging, said=announcement(3))
    assert verdicts(staging, 3, 4) == [StagingVerdict.ACCEPT, StagingVerdict.WAIT]
    staging.announced(announcement(9))  # its statuses may not have been read yet
    assert verdicts(staging, 4) == [StagingVerdict.WAIT]
    staging.read_to_end(staging.wanted(), announcement(9))
    assert verdicts(staging, 4) == [StagingVerdict.ACCEPT]
    staging.announced(announcement(2))  # the golden one was created anew
    assert verdicts(staging, 4) == [StagingVerdict.WAIT]


def test_r24_what_was_announced_of_another_journal_proves_nothing_of_this_one() -> None:
    staging = Staging("golden")
    read(staging, said=announcement(9, journal_id="another"))
    staging.announced(announcement(9))  # its statuses may not have been read yet
    assert verdicts(staging, 4) == [StagingVerdict.WAIT]


def test_a_repeat_of_what_the_golden_one_refused_is_skipped() -> None:
    staging = Staging("golden")
    read(staging, status(0, Status.REMOVED_FAILED), said=announcement(5))
    assert staging.ruling(START, arrival(4, package_id="p0")).verdict is StagingVerdict.SKIP


def test_r30_a_repeat_of_one_of_very_many_refusals_is_never_accepted() -> None:
    staging = Staging("golden")
    late = replace(START, mark=Mark(15_000, ""))
    staging.ruling(late, arrival(15_001))
    staging.covers(0)
    said = announcement(20_000)
    staging.announced(said)
    for number in range(10_100):
        staging.status(status(number, Status.REMOVED, package_id=f"q{number}"))
    staging.read_to_end(staging.wanted(), said)
    found = [staging.ruling(late, arrival(16_000, package_id=f"q{n}")) for n in (0, 99, 100)]
    assert [ruling.verdict for ruling in found] == [
        StagingVerdict.WAIT,
        StagingVerdict.WAIT,
        StagingVerdict.SKIP,
    ]
    assert "may be a repeat" in found[0].reason
    assert staging.ruling(late, arrival(16_000, package_id="new")).verdict is StagingVerdict.ACCEPT


@pytest.mark.parametrize(
    ("said", "because"),
    [
        (None, "has not announced itself"),
        (announcement(9, editable=False), "make it editable"),
        (announcement(9, journal_id="another"), "does not follow main in this journal"),
        (announcement(9, publisher_agent="other"), "does not follow main in this journal"),
        (announcement(9, started_offset=0), "golden began behind offset 0"),
        (
            announcement(-1, state=SubscriptionState.BLOCKED, last_error="no\0 room"),
            "offset 0, which is BLOCKED: no room",
        ),
    ],
)
def test_a_wait_says_what_it_waits_for(said: DiscoveryMessage | None, because: str) -> None:
    staging = Staging("golden")
    read(staging, said=said)
    ruling = staging.ruling(START, arrival(0))
    assert ruling.verdict is StagingVerdict.WAIT
    assert because in ruling.reason
    assert "golden" in ruling.reason


@pytest.mark.parametrize(
    ("said", "because"),
    [
        (announcement(-1), "waits for golden to import offset 0"),
        (
            announcement(-1, state=SubscriptionState.PAUSED),
            "waits for golden to import offset 0, which was PAUSED",
        ),
        (
            announcement(9, state=SubscriptionState.GAP, last_error="too late"),
            "waits for golden, which was GAP: too late",
        ),
        (
            announcement(9, journal_id="another"),
            "waits for golden, which does not follow main in this journal",
        ),
    ],
)
def test_a_wait_names_a_golden_one_that_is_away(said: DiscoveryMessage, because: str) -> None:
    clock = ManualClock()
    staging = Staging("golden", clock)
    read(staging, said=said)
    clock.advance(29.9)
    assert "silent" not in staging.ruling(START, arrival(0)).reason
    clock.advance(15.0)
    reason = staging.ruling(START, arrival(0)).reason
    assert reason == f"{because}; golden has been silent for 40 s"
    staging.announced(said)
    assert "silent" not in staging.ruling(START, arrival(0)).reason
    staging.announced(said, age_s=3_600.0)
    assert "silent for 3600 s" in staging.ruling(START, arrival(0)).reason


def test_silence_proves_nothing_of_the_time_that_the_status_topic_has_forgotten() -> None:
    staging = Staging("golden")
    read(staging, said=announcement(9))
    staging.covers(500)
    assert staging.ruling(START, arrival(0, time_ms=500)).verdict is StagingVerdict.ACCEPT
    older = staging.ruling(START, arrival(0, time_ms=499))
    assert older.verdict is StagingVerdict.WAIT
    assert "forgotten" in older.reason


def test_a_subscription_that_is_moved_back_has_everything_read_again() -> None:
    staging = Staging("golden")
    read(staging, *(status(n, Status.IMPORTED) for n in range(10_000)))
    late = replace(START, mark=Mark(9_000, ""))
    assert staging.ruling(late, arrival(9_001)).verdict is StagingVerdict.ACCEPT
    assert verdicts(staging, 0) == [StagingVerdict.WAIT]
    read(staging, status(0, Status.REMOVED))
    assert verdicts(staging, 0) == [StagingVerdict.SKIP]


def test_r24_a_subscription_that_is_in_another_journal_has_everything_read_again() -> None:
    staging = Staging("golden")
    read(staging, status(0, Status.IMPORTED))
    moved = replace(START, journal_id="another")
    assert staging.ruling(moved, arrival(0)).verdict is StagingVerdict.WAIT


def test_r30_what_is_too_far_above_to_be_kept_is_read_once_there_is_room() -> None:
    far = 2_048 * 4_096
    reported = [status(offset, Status.IMPORTED) for offset in range(0, far + 1, 4_096)]
    staging = Staging("golden")
    read(staging, *reported, said=announcement(far))
    assert verdicts(staging, 0, far) == [StagingVerdict.ACCEPT, StagingVerdict.WAIT]
    near = replace(START, mark=Mark(far - 1, ""))
    reasons = [staging.ruling(near, arrival(far)).reason for _ in range(2)]
    assert "are being read" in reasons[1], "what lies below has made room"
    staging.status(reported[-1])
    staging.read_to_end(staging.wanted(), announcement(far))
    assert staging.ruling(near, arrival(far)).verdict is StagingVerdict.ACCEPT
