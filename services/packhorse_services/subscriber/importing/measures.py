"""What a subscription counts and times, in the metrics' words."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from packhorse.runtime.metrics import (
    SUBSCRIBER_CURRENT_IMPORT_SECONDS,
    SUBSCRIBER_DISTRIBUTION_SECONDS,
    SUBSCRIBER_IMPORT_SECONDS,
    SUBSCRIBER_JOURNAL_SECONDS,
    SUBSCRIBER_PACKAGES,
)
from packhorse.wire.messages import Status
from packhorse_services.subscriber.journal.arrivals import Arrival
from packhorse_services.subscriber.journal.grouping import Group


@contextmanager
def timed_import(agent: str) -> Iterator[None]:
    """Time one import transaction, also while it lasts."""
    started = time.monotonic()
    running = SUBSCRIBER_CURRENT_IMPORT_SECONDS.labels(agent)
    running.set_function(lambda: time.monotonic() - started)
    status = "failed"
    try:
        yield
        status = "imported"
    finally:
        running.set_function(lambda: 0.0)
        SUBSCRIBER_IMPORT_SECONDS.labels(status).observe(time.monotonic() - started)


def count_imported(group: Group, now_ms: int) -> None:
    """Count packages that are in the content now, and those that were passed over."""
    packages, repeats = group.packages, len(group.repeats)
    actions = Counter(package.entry.action for package in packages)
    for action, count in actions.items():
        SUBSCRIBER_PACKAGES.labels(action.value, "imported").inc(count)
    for package in packages:
        age_s = (now_ms - package.entry.accepted_ms) / 1000
        SUBSCRIBER_DISTRIBUTION_SECONDS.observe(max(0.0, age_s))
    if repeats:
        SUBSCRIBER_PACKAGES.labels("", "duplicate").inc(repeats)
    if group.left_out:
        count_removed(Status.SKIPPED, len(group.left_out))


def measure_arrival(arrived: Sequence[Arrival], now_ms: int) -> None:
    """Measure how long the newest arrival took from the journal's append; by two clocks."""
    if arrived and (record := arrived[-1].record) and not record.damage:
        SUBSCRIBER_JOURNAL_SECONDS.observe(max(0.0, (now_ms - record.time_ms) / 1000))


def count_removed(status: Status, count: int) -> None:
    """Count packages that were removed without import."""
    SUBSCRIBER_PACKAGES.labels("", status.value.lower()).inc(count)
