"""What a subscription says is settled holds for the log and the epoch that it is in."""

import pytest
from prometheus_client import REGISTRY

from packhorse.wire.messages import SubscriptionState
from packhorse_services.subscriber.announce.subscription_report import Settled, SubscriptionReport
from packhorse_services.subscriber.journal.arrivals import Mark


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
    assert report.lag_s(1_000) == 0.0, "by a clock that is behind the journal's"
    report.wait_for_lease()
    assert report.lag_s(5_000) is None


def test_r16_where_it_is_has_been_said_until_the_lease_is_gone() -> None:
    report = SubscriptionReport("main")
    said = [report.is_placed]
    for error, is_placed in (("no database", False), ("a gap", True), ("no database", False)):
        report.troubled(error, SubscriptionState.RUNNING, is_placed=is_placed)
        said.append(report.is_placed)
    report.wait_for_lease()
    assert [*said, report.is_placed] == [False, False, True, True, False]


def test_the_package_that_was_passed_last_is_named_until_the_next() -> None:
    report = SubscriptionReport("main")
    report.healthy(SubscriptionState.RUNNING, mark=Mark(5, "a"))
    report.update(state=SubscriptionState.BLOCKED)
    assert (report.state.offset, report.state.package_id) == (5, "a")


def test_metrics_show_where_it_is_and_the_one_state_that_it_is_in() -> None:
    def shown(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(f"packhorse_subscriber_{name}", {"agent": "one"} | labels)

    report = SubscriptionReport("one")
    report.update(state=SubscriptionState.RUNNING, retries=2, mark=Mark(5, "a"))
    report.update(state=SubscriptionState.BLOCKED, retries=3)
    assert (shown("offset"), shown("retries")) == (5, 3)
    found = {state: shown("state", state=state.value) for state in SubscriptionState}
    assert [state for state, value in found.items() if value] == [SubscriptionState.BLOCKED]
    assert found[SubscriptionState.BLOCKED] == 1
