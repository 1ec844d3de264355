"""What the journal keeps, as an operator changes it: retentions, and discarded packages (R4).

Subscribers that would lose packages by it are named first, and stop it unless the operator names
them too. Who they are is what they last announced, so one may be named that has caught up since.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from psycopg import Connection
from pydantic import BaseModel, Field

from packhorse.bookkeeping import subscriber_rows
from packhorse.bookkeeping.subscriber_rows import AnnouncementAge
from packhorse.db.rows import now_ms
from packhorse.errors import Permanent
from packhorse.messaging.api import Bounds, Journal
from packhorse.messaging.faults import how_long
from packhorse.messaging.topics import retention_faults, standard_topics
from packhorse.wire.codec import decode_discovery
from packhorse.wire.messages import DiscoveryMessage
from packhorse.wire.record import Undecodable, type_headers
from packhorse.wire.topics import Topics


class WouldLosePackages(Permanent):
    """Subscribers that were not named have not imported what would go; nothing was changed."""


class RetentionUnfit(Permanent):
    """Some topic would keep less than it must; nothing was changed."""


class NotInLog(Permanent):
    """The log does not hold the offset; nothing was changed."""


class LeftBehind(BaseModel):
    """A subscriber that has not imported all of what goes, as it last announced itself."""

    subscriber: str
    publisher_agent: str = Field(description="Empty where the announcement can't be read")
    offset: int = Field(description="Of the last package that it is done with; -1: of none")
    announced_at: datetime


class Discarded(BaseModel):
    """What was removed from the log, or would be."""

    done: bool = Field(description="False for a dry run")
    oldest_offset: int = Field(description="The oldest one of the log afterwards")
    next_offset: int
    offsets: int = Field(description="How many offsets go; each belongs to one package at most")
    left_behind: list[LeftBehind]


class KeptPartition(BaseModel):
    """What a partition holds: offsets from the oldest up to, not including, the next one."""

    oldest_offset: int
    next_offset: int


class KeptTopic(BaseModel):
    """One of the five topics."""

    topic: str = Field(description="package, status, discovery, command or event")
    name: str = Field(description="Its name in the journal")
    retention_s: int | None = Field(description="How long records are kept; null: for ever")
    partitions: list[KeptPartition]


@dataclass(frozen=True, slots=True)
class Keeping:
    """The five topics of a journal; `least_hours` is how long programs want packages to be kept."""

    journal: Journal
    topics: Topics
    least_hours: float

    def shown(self) -> list[KeptTopic]:
        """Return the topics as they are. Raises `TopicMissing`, and what is `Transient`."""
        return [self._shown(part) for part in self.topics.by_part()]

    def retain(
        self,
        connection: Connection,
        topic: str,
        retention_ms: int,
        *,
        leave_behind: Collection[str],
    ) -> KeptTopic:
        """Let one of the topics keep its records for so long from now on; -1 is for ever.

        Raises `RetentionUnfit`, and `WouldLosePackages` where packages go by it that somebody who
        is not to be left behind has not imported.
        """
        name = self.topics.by_part()[topic]
        before_ms = self.journal.retention_ms(name)
        self._require_fit(name, retention_ms)
        if topic == "package" and how_long(retention_ms) < how_long(before_ms):
            oldest = self.journal.offset_at(name, now_ms(connection) - retention_ms)
            if oldest > self.journal.bounds(name).oldest:
                _require_named(self._left_behind(connection, oldest), leave_behind)
        self.journal.retain(name, retention_ms)
        return self._shown(topic)

    def discard(
        self, connection: Connection, up_to: int, *, leave_behind: Collection[str], dry_run: bool
    ) -> Discarded:
        """Remove the packages up to an offset, and that one.

        Raises `NotInLog`, and `WouldLosePackages` where somebody who is not to be left behind has
        not imported them.
        """
        package = self.topics.package
        found = self.journal.bounds(package)
        if up_to >= found.next:
            raise NotInLog(f"the log of packages holds offsets {_range(found)}, not {up_to}")
        oldest = max(up_to + 1, found.oldest)
        left = self._left_behind(connection, oldest) if oldest > found.oldest else []
        if not dry_run:
            _require_named(left, leave_behind)
            self.journal.truncate(package, oldest)
        return Discarded(
            done=not dry_run,
            oldest_offset=oldest,
            next_offset=found.next,
            offsets=oldest - found.oldest,
            left_behind=left,
        )

    def _shown(self, topic: str) -> KeptTopic:
        name = self.topics.by_part()[topic]
        kept_ms = self.journal.retention_ms(name)
        bounds = [self.journal.bounds(name, n) for n in range(self.journal.partitions(name))]
        return KeptTopic(
            topic=topic,
            name=name,
            retention_s=None if kept_ms < 0 else kept_ms // 1000,
            partitions=[
                KeptPartition(oldest_offset=one.oldest, next_offset=one.next) for one in bounds
            ],
        )

    def _require_fit(self, name: str, retention_ms: int) -> None:
        wanted = {
            spec.name: spec for spec in standard_topics(self.topics, kept_hours=self.least_hours)
        }
        least_ms = wanted[name].retention_ms
        if how_long(retention_ms) < how_long(least_ms):
            raise RetentionUnfit(
                f"{name} must keep its records for {least_ms // 1000} s at least, or publishers "
                "refuse to start; lower PACKHORSE_KEEP_PACKAGES_HOURS of publishers and "
                "cleanup first"
            )
        found = {one: self.journal.retention_ms(one) for one in wanted if one != name}
        if faults := retention_faults(self.topics, {**found, name: retention_ms}):
            raise RetentionUnfit("; ".join(faults))

    def _left_behind(self, connection: Connection, oldest: int) -> list[LeftBehind]:
        """Return who has not imported all packages below `oldest`, by what is known of it.

        An announcement that speaks of another log, or can't be read, proves nothing (R31).
        """
        identity = self.journal.identity(self.topics.package)
        rows = [one for row in subscriber_rows.read_all(connection) for one in _positions(row)]
        return sorted(
            (one for one, log in rows if one.offset < oldest - 1 or log not in ("", identity)),
            key=lambda one: (one.subscriber, one.publisher_agent),
        )


def _positions(row: AnnouncementAge) -> list[tuple[LeftBehind, str]]:
    """Return where the subscriber is, for each agent, and of which log it speaks."""
    at = datetime.fromtimestamp(row.seen_ms / 1000, UTC)
    try:
        states = decode_discovery(type_headers(DiscoveryMessage), row.announcement).states
    except Undecodable:
        unknown = LeftBehind(
            subscriber=row.subscriber, publisher_agent="", offset=-1, announced_at=at
        )
        return [(unknown, "")]
    return [
        (
            LeftBehind(
                subscriber=row.subscriber,
                publisher_agent=state.publisher_agent,
                offset=state.offset,
                announced_at=at,
            ),
            state.journal_id,
        )
        for state in states
    ]


def _require_named(left: Sequence[LeftBehind], named: Collection[str]) -> None:
    unnamed = [one for one in left if one.subscriber not in named]
    if unnamed:
        listed = ", ".join(
            f"{one.subscriber} (agent {one.publisher_agent}, done up to {one.offset})"
            for one in unnamed
        )
        raise WouldLosePackages(
            f"these have not imported all of it and would be in GAP: {listed}. Wait for them, "
            "forget who is gone (packhorse forget subscriber), or name them in leave_behind"
        )


def _range(bounds: Bounds) -> str:
    return f"{bounds.oldest} to {bounds.next - 1}" if bounds.oldest < bounds.next else "none"
