"""Publishes that a package is distributed: once, in order, when all live subscribers have it.

The cursor is durable and moves after the event; the event log knows what it has.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from psycopg import Connection

from packhorse.clock import Clock
from packhorse.db.transactions import bookkeeping
from packhorse.messaging.api import Journal, Outgoing
from packhorse.runtime.metrics import PUBLISHER_EVENTS, PUBLISHER_EVENTS_MISSED
from packhorse.wire.codec import encode_distributed
from packhorse.wire.messages import PackageDistributed, Status, SubscriberState
from packhorse.wire.topics import MAX_RECORD_BYTES, Topics
from packhorse_services.publisher.outcomes import outcome_rows
from packhorse_services.publisher.outcomes.distribution_state import DistributionState
from packhorse_services.publisher.outcomes.event_log import EventAppender
from packhorse_services.publisher.outcomes.outcome_rows import OutcomeThere
from packhorse_services.publisher.outcomes.packages_in_range import PackageSource, Placed
from packhorse_services.publisher.outcomes.progress import TopicCursor, move_cursor, read_cursor

logger = logging.getLogger(__name__)

_LARGEST = MAX_RECORD_BYTES * 3 // 4
_NOTHING = OutcomeThere()
_NAMED = ("imported", "removed", "failed", "skipped", "away")


@dataclass(frozen=True, slots=True)
class AnnouncedState:
    """What a subscriber has announced of its subscription, before the statuses were read."""

    subscriber: str
    subscription: SubscriberState
    live: bool

    @property
    def done(self) -> int:
        """The last package that the subscription is done with, whose statuses are all sent."""
        return max(self.subscription.settled_offset, self.subscription.started_offset)


class EventPublisher:
    """Of one publisher agent; used by one thread, of the replica that holds the recorder lock."""

    def __init__(
        self,
        journal: Journal,
        topics: Topics,
        agent: str,
        *,
        packages: PackageSource,
        log: EventAppender,
        clock: Clock,
    ) -> None:
        self._journal, self._topics, self._agent = journal, topics, agent
        self._packages, self._log, self._clock = packages, log, clock
        self._cursor: TopicCursor | None = None

    def forget(self) -> None:
        """Begin with the durable cursor again: another replica may have published events since."""
        self._cursor = None
        self._log.close()

    def publish(
        self, connection: Connection, announced: Sequence[AnnouncedState], journal_id: str
    ) -> bool:
        """Publish what all live subscribers are done with; true when there is more than one batch.

        All statuses that were sent before `announced` must be recorded. `journal_id` names the
        log of packages. Without a live subscriber it does nothing. Raises a `PackhorseError` of the
        journal, or `psycopg.Error`; then `forget` and try again.
        """
        live = [one.done for one in announced if one.live]
        if not live or (self._is_at(journal_id) >= min(live)):
            return False
        bounds = self._journal.bounds(self._topics.package)
        after = self._begin(connection, journal_id, bounds.oldest)
        last = min(*live, bounds.next - 1)
        if after >= last:
            return False
        found = self._packages.between(after, last)
        if self._journal.identity(self._topics.package) != journal_id:
            return False  # what was found may be of another log than what was announced
        self._append(connection, journal_id, found.packages, announced)
        self._move(connection, TopicCursor(journal_id, found.last))
        return found.last < last

    def _is_at(self, journal_id: str) -> int:
        cursor = self._cursor
        return cursor.offset if cursor is not None and cursor.journal_id == journal_id else -2

    def _begin(self, connection: Connection, journal_id: str, oldest: int) -> int:
        """Return the last package whose event was published, or can't be published any more."""
        if self._cursor is None:
            with bookkeeping(connection):
                self._cursor = read_cursor(connection, self._agent, self._topics.event)
        reported = self._is_at(journal_id)
        if reported < -1:
            reported = oldest - 1
        elif reported < oldest - 1:
            logger.warning("packages left the log before all had them", extra={"oldest": oldest})
            PUBLISHER_EVENTS_MISSED.inc(oldest - 1 - reported)
            reported = oldest - 1
        self._cursor = TopicCursor(journal_id, reported)
        return reported

    def _append(
        self,
        connection: Connection,
        journal_id: str,
        packages: Sequence[Placed],
        announced: Sequence[AnnouncedState],
    ) -> None:
        if not packages:
            return
        first, last = packages[0].offset, packages[-1].offset
        with bookkeeping(connection):
            known = outcome_rows.statuses_between(connection, self._agent, journal_id, first, last)
        self._log.append(
            journal_id,
            [
                (one.offset, self._record(self._event(one, known.get(one.offset, {}), announced)))
                for one in packages
            ],
        )
        PUBLISHER_EVENTS.inc(len(packages))

    def _event(
        self,
        package: Placed,
        statuses: Mapping[str, OutcomeThere],
        announced: Sequence[AnnouncedState],
    ) -> PackageDistributed:
        names: dict[str, list[str]] = {kind: [] for kind in _NAMED}
        is_everywhere = True
        for one in announced:
            reported = statuses.get(one.subscriber, _NOTHING)
            if reported.package_id not in ("", package.package_id):
                reported = _NOTHING
            kind = _kind(one, package.offset, reported.status)
            is_for = not package.targets or one.subscriber in package.targets
            is_everywhere &= kind == "imported" or reported.left_out or not is_for
            if is_for or kind != "away":
                names[kind].append(one.subscriber)
        return PackageDistributed(
            package_id=package.package_id,
            publisher_agent=self._agent,
            offset=package.offset,
            paths=package.paths,
            deep_paths=package.deep_paths,
            action=package.action.value,
            state=_state(is_everywhere=is_everywhere),
            **{kind: tuple(found) for kind, found in names.items()},
        )

    def _record(self, event: PackageDistributed) -> Outgoing:
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        source = f"/packhorse/{self._agent}"
        encoded = encode_distributed(event, source=source, time=time)
        if len(encoded.value) > _LARGEST:  # who has it is in GET /distributions too
            bare = replace(event, imported=(), removed=(), failed=(), skipped=(), away=())
            encoded = encode_distributed(bare, source=source, time=time)
        return Outgoing(encoded.value, encoded.headers, self._agent)

    def _move(self, connection: Connection, cursor: TopicCursor) -> None:
        with bookkeeping(connection):
            move_cursor(connection, self._agent, self._topics.event, cursor)
        self._cursor = cursor


_KINDS = {
    Status.REMOVED: "removed",
    Status.REMOVED_FAILED: "failed",
    Status.SKIPPED: "skipped",
    Status.DUPLICATE: "skipped",
}


def _state(*, is_everywhere: bool) -> str:
    """Return the state of a package that all live subscribers are done with (R31)."""
    state = DistributionState.DISTRIBUTED if is_everywhere else DistributionState.PARTLY_DISTRIBUTED
    return state.value


def _kind(announced: AnnouncedState, offset: int, status: Status | None) -> str:
    """Return what a subscriber did with a package."""
    if status in _KINDS:
        return _KINDS[status]
    if announced.subscription.started_offset >= offset:
        return "skipped"
    return "imported" if announced.done >= offset else "away"
