"""What a subscriber says of itself: where its subscriptions are, and what it did not import."""

from dataclasses import dataclass

from psycopg import Connection

from packhorse.bookkeeping import positions
from packhorse.bookkeeping.positions import LEFT_OUT, LoadedSnapshot
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.wire.messages import Status
from packhorse_services.pipeline.errors import TaskRefused

_MOST_STATUSES = 1_000_000


@dataclass(frozen=True, slots=True)
class AuditedSubscription:
    """A subscription's position; it has not imported everything up to `started`."""

    agent: str
    offset: int
    started: int


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything in the subscriber's own database that says what its content must be."""

    journal_id: str
    subscriptions: tuple[AuditedSubscription, ...]
    decided: tuple[tuple[str, int, bool], ...] = ()
    """Publisher agent, offset and whether it was imported, as far as it still remembers."""
    joined: LoadedSnapshot | None = None
    """None also when nothing is known: a reset forgets it."""
    path_filter: PathFilter = EVERYTHING
    """Which nodes it takes."""

    @property
    def agents(self) -> list[str]:
        """The publisher agents that it follows."""
        return [subscription.agent for subscription in self.subscriptions]

    @property
    def added(self) -> tuple[AuditedSubscription, ...]:
        """The subscriptions that began after the snapshot that it is known to have joined by."""
        known = set(self.joined.agents) if self.joined else set(self.agents)
        return tuple(
            subscription for subscription in self.subscriptions if subscription.agent not in known
        )

    @property
    def continued(self) -> tuple[AuditedSubscription, ...]:
        """The other subscriptions."""
        return tuple(
            subscription for subscription in self.subscriptions if subscription not in self.added
        )

    @property
    def lowest(self) -> int:
        """The offset up to which every subscription is that was not added."""
        return min(subscription.offset for subscription in self.continued or self.subscriptions)

    @property
    def highest(self) -> int:
        """The highest offset that any subscription has."""
        return max(subscription.offset for subscription in self.subscriptions)


def read_situation(connection: Connection) -> Situation:
    """Return the situation in the caller's transaction, the one that content is read in.

    Raises `TaskRefused` when there is nothing to compare with.
    """
    act_as(connection, BOOKKEEPER)
    stored = positions.read_positions(connection)
    if not stored:
        raise TaskRefused("it has no subscription yet, so it has imported nothing")
    journals = {one.journal_id for one in stored}
    if len(journals) > 1:
        raise TaskRefused(
            "its subscriptions follow different journals (JOURNAL_MISMATCH); reset them"
        )
    subscriptions = tuple(AuditedSubscription(one.agent, one.offset, one.started) for one in stored)
    journal_id = journals.pop()
    return Situation(
        journal_id,
        subscriptions,
        decided=_decided(connection),
        joined=positions.read_loaded_snapshot(connection, journal_id),
        path_filter=PathFilter(*positions.read_filter(connection)),
    )


def _decided(connection: Connection) -> tuple[tuple[str, int, bool], ...]:
    """Return its own statuses: those that are not sent yet, and older ones that it still has."""
    found = positions.read_decisions(connection, _MOST_STATUSES + 1)
    if len(found) > _MOST_STATUSES:
        raise TaskRefused(f"it has more than {_MOST_STATUSES} statuses to send; let it send them")
    counts = (Status.IMPORTED.value, LEFT_OUT)
    return tuple((one.agent, one.offset, one.status in counts) for one in found)
