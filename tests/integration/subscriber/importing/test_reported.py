"""What a subscription reports of the package in front, and counts, as it fails and is passed."""

from dataclasses import replace

from packhorse.wire.messages import AWAITED, Action, DesiredState, SubscriptionState
from packhorse_services.subscriber.commands.control import DesiredControl
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.journal.arrivals import Arrival
from packhorse_services.subscriber.journal.position import Position
from packhorse_services.subscriber.staging.staging import OpenGate, Ruling, StagingVerdict
from tests.harness.clock import ManualClock
from tests.harness.feed import AGENT, Feed, page
from tests.harness.grown import growth
from tests.harness.subscriber import Worker
from tests.integration.subscriber.conftest import Workers


def lag(worker: Worker, now_ms: int) -> float | None:
    return worker.context.report.lag_s(now_ms)


def test_a_package_in_front_is_reported_until_it_is_passed(feed: Feed, workers: Workers) -> None:
    clock = ManualClock()
    worker = workers(policy=RetryPolicy(-1, 5.0, 60.0), clock=clock)
    feed.bad()
    began, appended = clock.wall_ms(), feed.records()[0].time_ms
    worker.step_until_failed(1)
    state = worker.report.state
    assert (state.blocked_since_ms, state.next_attempt_ms) == (began, began + 5_000)
    assert lag(worker, appended + 3_000) == 3.0
    clock.advance(5.0)
    worker.step_until_failed(2)
    state = worker.report.state
    assert (state.blocked_since_ms, state.next_attempt_ms) == (began, began + 15_000)
    worker.clear(0)
    worker.run()
    worker.run(lambda: lag(worker, appended + 3_000) == 0.0)
    state = worker.report.state
    assert state.state is SubscriptionState.IDLE
    assert (state.offset, state.retries, state.last_error) == (0, 0, "")
    assert (state.blocked_since_ms, state.next_attempt_ms) == (0, 0)


def test_imports_failures_and_removals_are_counted_by_kind(feed: Feed, workers: Workers) -> None:
    packages = "subscriber_packages_total"
    grown = growth(
        (packages, {"action": "ADD", "status": "imported"}),
        (packages, {"action": "", "status": "duplicate"}),
        (packages, {"action": "", "status": "skipped"}),
        (packages, {"action": "", "status": "removed_failed"}),
        ("subscriber_import_errors_total", {"kind": "permanent"}),
        ("subscriber_import_errors_total", {"kind": "transient"}),
        ("subscriber_distribution_seconds_count", {}),
    )
    worker = workers(policy=RetryPolicy(1, 0.0, 0.0))
    feed.producer = "author"
    feed.add(page("/a"))
    feed.again(feed.records()[0])
    feed.add_for(["another"], page("/b"))
    feed.bad()
    feed.add(page("/c"))
    worker.run()
    assert grown() == [2, 1, 1, 1, 2, 0, 2]


class Holding(OpenGate):
    """A gate that lets nothing through, for one reason after another."""

    reason = "first"

    def ruling(self, position: Position, arrival: Arrival) -> Ruling:
        """Let it wait."""
        return Ruling(StagingVerdict.WAIT, self.reason)


def steps(worker: Worker) -> None:
    """Do what there is to do, and then nothing."""
    session = worker.session or worker.begin()
    for _ in range(3):
        session.step()


def test_who_announces_hears_once_of_each_import_failure_pause_and_end_of_it(
    feed: Feed, worker: Worker
) -> None:
    feed.add(page("/a"))  # the first one after a start is imported by itself
    feed.add(page("/b"))
    worker.run()
    assert worker.heard == [(SubscriptionState.RUNNING, False), (SubscriptionState.IDLE, False)]
    message = feed.message(Action.ADD, ["/c"], (), [page("/c")])
    feed.append(replace(message, metadata={AWAITED: "true"}))
    worker.run()
    assert worker.heard[2:] == [(SubscriptionState.IDLE, True)]
    worker.control.take({AGENT: DesiredControl(DesiredState.PAUSE)})
    steps(worker)
    assert worker.heard[3:] == [(SubscriptionState.PAUSED, False)]
    worker.control.take({})
    steps(worker)
    assert worker.heard[4:] == [(SubscriptionState.IDLE, False)]
    feed.bad()
    worker.step_until_failed(1)
    assert worker.heard[5:] == [(SubscriptionState.RUNNING, False)]


def test_who_announces_hears_of_each_reason_to_wait(feed: Feed, workers: Workers) -> None:
    gate = Holding()
    worker = workers(gate=gate)
    feed.add(page("/a"))
    worker.begin()
    assert worker.arrived.wait(120)
    for number in (1, 2):
        steps(worker)
        assert worker.heard == [(SubscriptionState.WAITING_FOR_SUBSCRIBER, False)] * number
        assert worker.report.state.last_error == gate.reason
        gate.reason = "second"
