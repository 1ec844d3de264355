"""Packages of an agent, and what a golden subscriber reports about them, for tests of staging."""

from dataclasses import replace

from packhorse.messaging.api import Record
from packhorse.wire.messages import (
    Action,
    DiscoveryMessage,
    PackageEntry,
    PackageMessage,
    Status,
    StatusMessage,
    SubscriberState,
)
from packhorse.wire.package_codec import encode_package
from packhorse_services.subscriber.journal.arrivals import Arrival, Mark, arrival_of
from packhorse_services.subscriber.journal.position import Position
from packhorse_services.subscriber.staging.staging import Staging

START = Position("main", "journal", 1, Mark(-1, ""))


def arrival(
    offset: int,
    *,
    package_id: str = "",
    action: Action = Action.DELETE,
    time_ms: int = 1_000,
    targets: tuple[str, ...] = (),
) -> Arrival:
    entry = PackageEntry(package_id or f"p{offset}", "main", action, ("/a",), targets=targets)
    encoded = encode_package(PackageMessage(entry))
    record = Record("package", 0, offset, time_ms, None, encoded.headers, encoded.value)
    return arrival_of(record, "main")


def status(offset: int, became: Status, **more: object) -> StatusMessage:
    message = StatusMessage("golden", "main", "journal", offset, became, f"p{offset}")
    return replace(message, **more)  # type: ignore[arg-type]


def announcement(settled: int, *, editable: bool = True, **more: object) -> DiscoveryMessage:
    state = SubscriberState("main", settled, journal_id="journal", settled_offset=settled)
    return DiscoveryMessage("golden", (replace(state, **more),), editable)  # type: ignore[arg-type]


def read(staging: Staging, *reported: StatusMessage, said: DiscoveryMessage | None = None) -> None:
    """Let the staging read the whole status topic, as its follower does."""
    staging.ruling(START, arrival(0))  # what a subscription asks makes it want a reading
    staging.covers(0)
    if said is not None:
        staging.announced(said)
    for message in reported:
        staging.status(message)
    staging.read_to_end(staging.wanted(), said)
