"""A subscriber that was asked to catch up first is ready once every subscription has (ADR 49)."""

import pytest
from prometheus_client import REGISTRY

from packhorse.runtime.readiness import NotReady
from packhorse.wire.messages import SubscriptionState
from packhorse_services.subscriber.announce.catching_up import CatchingUp, ReadySettings, ReadyWhen
from packhorse_services.subscriber.announce.subscription_report import SubscriptionReport
from tests.harness.clock import ManualClock

CAUGHT_UP = ReadySettings(ReadyWhen.CAUGHT_UP, idle_s=10, latency_s=60, force_s=900)


class Played:
    """Two subscriptions whose states the test sets."""

    def __init__(self, settings: ReadySettings = CAUGHT_UP) -> None:
        self.clock = ManualClock()
        self.reports = [SubscriptionReport("main"), SubscriptionReport("bulk")]
        self.subject = CatchingUp(self.reports, settings, self.clock)
        self.subject.look()

    def enter(self, *states: SubscriptionState, age_s: float = 0) -> None:
        head_time_ms = self.clock.wall_ms() - int(age_s * 1000) if age_s else 0
        for report, state in zip(self.reports, states, strict=True):
            report.update(state=state, head_time_ms=head_time_ms)
        self.subject.look()

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.subject.look()

    @property
    def reason(self) -> str:
        """Why it is not ready; empty when it is."""
        try:
            self.subject.check()
        except NotReady as error:
            return str(error)
        return ""


def shown(reason: str, name: str = "packhorse_subscriber_ready") -> float | None:
    return REGISTRY.get_sample_value(name, {"reason": reason})


def test_nobody_asked_it_to_catch_up() -> None:
    played = Played(ReadySettings())
    assert (played.reason, shown("STARTED")) == ("", 1)


def test_it_is_ready_once_all_subscriptions_were_idle_for_long_enough() -> None:
    played = Played()
    played.enter(SubscriptionState.IDLE, SubscriptionState.RUNNING, age_s=100)
    played.after(9)
    played.enter(SubscriptionState.IDLE, SubscriptionState.IDLE)
    played.after(9.9)
    assert played.reason == "CATCHING_UP"
    assert shown("CATCHING_UP") == 0
    played.enter(SubscriptionState.RUNNING, SubscriptionState.IDLE, age_s=100)
    played.enter(SubscriptionState.IDLE, SubscriptionState.IDLE)
    played.after(9.9)
    assert played.reason == "CATCHING_UP", "it was interrupted"
    played.after(0.2)
    assert played.reason == ""
    assert (shown("IDLE"), shown("CATCHING_UP")) == (1, None)
    assert shown("IDLE", "packhorse_subscriber_ready_seconds") == pytest.approx(29.0)
    played.enter(SubscriptionState.GAP, SubscriptionState.STOPPED)
    assert played.reason == "", "what happens later takes no site out of service"


def test_it_is_ready_when_the_package_in_front_is_young_enough() -> None:
    played = Played()
    played.enter(SubscriptionState.RUNNING, SubscriptionState.RUNNING, age_s=60.5)
    assert played.reason == "CATCHING_UP"
    played.enter(SubscriptionState.RUNNING, SubscriptionState.RUNNING)
    assert played.reason == "CATCHING_UP", (
        "a subscription that has read nothing yet has no package in front"
    )
    played.enter(SubscriptionState.RUNNING, SubscriptionState.RUNNING, age_s=59.5)
    assert (played.reason, shown("LATENCY")) == ("", 1)


def test_it_is_ready_in_any_case_after_a_time() -> None:
    played = Played()
    played.enter(SubscriptionState.BLOCKED, SubscriptionState.IDLE)
    played.after(899)
    assert (played.reason, shown("BLOCKED")) == ("BLOCKED", 0)
    played.after(1)
    assert (played.reason, shown("FORCE")) == ("", 1)
    never = Played(ReadySettings(ReadyWhen.CAUGHT_UP))
    never.enter(SubscriptionState.BLOCKED, SubscriptionState.IDLE)
    never.after(10**6)
    assert never.reason == "BLOCKED"


@pytest.mark.parametrize(
    "state",
    [
        one
        for one in SubscriptionState
        if one not in (SubscriptionState.IDLE, SubscriptionState.RUNNING)
    ],
)
def test_a_subscription_that_stands_still_is_the_reason(state: SubscriptionState) -> None:
    played = Played()
    played.enter(SubscriptionState.RUNNING, state, age_s=1)
    played.after(100)
    assert played.reason == state.value
