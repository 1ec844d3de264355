"""What a subscription says is settled holds for the log and the epoch that it is in."""

import pytest

from packhorse.wire.messages import SubscriptionState
from packhorse_services.subscriber.announce.subscription_report import Settled, SubscriptionReport


def report_at(journal_id: str, epoch: int, offset: int) -> SubscriptionReport:
    report = SubscriptionReport("main")
    report.update(journal_id=journal_id, epoch=epoch, offset=offset)
    return report


@pytest.mark.parametrize(
    ("settled", "reported"),
    [
        (None, -1),
        (Settled("log", 2, 5), 5),
        (Settled("log", 2, 9), 7),
        (Settled("log", 1, 5), -1),
        (Settled("log", 3, 5), -1),
        (Settled("other", 2, 5), -1),
    ],
)
def test_settled_counts_in_its_own_log_and_epoch(settled: Settled | None, reported: int) -> None:
    report = report_at("log", 2, 7)
    report.set_settled(settled)
    assert report.state.settled_offset == reported


def test_what_an_earlier_tenure_settled_is_not_reported_in_the_next_one() -> None:
    report = report_at("log", 1, 7)
    report.set_settled(Settled("log", 1, 7))
    report.update(epoch=3)
    assert report.state.settled_offset == -1
    report.set_settled(Settled("log", 3, 7))
    assert report.state.settled_offset == 7


def test_the_lag_is_known_while_it_is_known_what_is_in_front() -> None:
    report = SubscriptionReport("main")
    assert report.lag_s(5_000) is None
    report.healthy(SubscriptionState.IDLE, head_time_ms=0)
    assert report.lag_s(5_000) == 0.0
    report.troubled("the journal has forgotten it", SubscriptionState.GAP, is_placed=True)
    assert report.lag_s(5_000) is None
    report.update(state=SubscriptionState.RUNNING, head_time_ms=2_000)
    report.troubled("the database is away", SubscriptionState.RUNNING, is_placed=True)
    assert report.lag_s(5_000) == 3.0
    report.wait_for_lease()
    assert report.lag_s(5_000) is None
