"""What a lane counts and times, in the metrics' words."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from packhorse.runtime.metrics import (
    SUBSCRIBER_CURRENT_IMPORT_SECONDS,
    SUBSCRIBER_DISTRIBUTION_SECONDS,
    SUBSCRIBER_IMPORT_SECONDS,
    SUBSCRIBER_PACKAGES,
)
from packhorse.wire.messages import PackageMessage, Status


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


def count_imported(packages: Sequence[PackageMessage], repeats: int, now_ms: int) -> None:
    """Count packages that are in the content now, and repeats that were passed over."""
    for package in packages:
        SUBSCRIBER_PACKAGES.labels(package.entry.action.value, "imported").inc()
        age_s = (now_ms - package.entry.accepted_ms) / 1000
        SUBSCRIBER_DISTRIBUTION_SECONDS.observe(max(0.0, age_s))
    if repeats:
        SUBSCRIBER_PACKAGES.labels("", "duplicate").inc(repeats)


def count_removed(status: Status, count: int) -> None:
    """Count packages that were removed without import."""
    SUBSCRIBER_PACKAGES.labels("", status.value.lower()).inc(count)
