"""What the lease store asks of its database: few steps, each of which happens whole or not at all.

Every step is decided by the database's own clock (R28) and by conditional updates, so that two
instances that see the same thing at the same time make one change of it.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One run of an instance: `instance_id` outlives the process, `runtime_id` doesn't."""

    instance_id: str
    runtime_id: str


class InstanceState(enum.Enum):
    """What the database says of an instance."""

    ACTIVE = "ACTIVE"
    DEACTIVATING = "DEACTIVATING"
    """Its lease can't be renewed any more; what it left behind is still to be dealt with."""
    INACTIVE = "INACTIVE"


@dataclass(frozen=True, slots=True)
class Renewal:
    """What an instance says of itself."""

    who: Incarnation
    lease_s: float
    acknowledged: int
    """The highest `seq` on whose predecessors nobody relies here."""
    properties: Mapping[str, str] | None
    """None: as they were. Joining takes None for none."""
    announce: bool = False
    """`acknowledged` is new: if all have acknowledged now, waiting instances are woken."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """The answer to a renewal: enough to see that nothing has changed."""

    seq: int
    editions: int
    """Grows whenever properties of an active instance change; comparable within one `seq`."""
    now_s: float
    """The database's clock."""
    acknowledged_by_all: bool
    """All active instances have acknowledged `seq`."""
    overdue: bool
    """`retire` has something to do: a lease of another has run out, or a backlog is left."""
    session: int = 0
    """Another one after each loss of the connection: with the database that it came from, the last
    renewals of all instances may have been lost, for nobody waits until a renewal is on disk."""


@dataclass(frozen=True, slots=True)
class InstanceEntry:
    """An instance as the database has it, active or deactivating."""

    who: Incarnation
    number: int
    """Small, and the same at every rejoin while the instance is remembered."""
    joined: int
    """The order of the instances: the `seq` of its joining, or of another's whose place it has."""
    state: InstanceState
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The whole cluster at one moment."""

    cluster_id: str
    """Persistent: as old as the first joining in this database."""
    seq: int
    """Raised by each change of who is active, deactivating or inactive."""
    editions: int
    acknowledged_by_all: bool
    entries: tuple[InstanceEntry, ...]
    """The active and the deactivating instances by `joined`."""
    inactive: tuple[int, ...]
    """The numbers of the latest inactive ones, ascending."""


class JoinOutcome(enum.Enum):
    """What became of an attempt to join."""

    JOINED = "JOINED"
    TAKEN = "TAKEN"
    """The lease of another incarnation of the instance has not run out."""
    UNSETTLED = "UNSETTLED"
    """The backlog of an earlier incarnation could not be dealt with yet."""


class LeaseStore(Protocol):
    """One session with the database, used by one thread; every step may raise `StoreUnavailable`.

    When the leader ends, a live one whose `packhorse.leader-prefix` is lower than that of the next
    comes first, the lowest of several, and all others keep their order; while a leader lives nobody
    comes before it.

    After `StoreUnavailable` a step may or may not have happened.
    """

    def renew(self, renewal: Renewal) -> Pulse | None:
        """Prolong the lease to `lease_s` from now; None unless this incarnation is active.

        A lease that has run out is prolonged as well while nobody has retired its holder.
        Properties that are given replace the former ones, and wake waiting instances.
        """
        ...

    def join(self, renewal: Renewal) -> JoinOutcome:
        """Become the last active instance, or renew the lease when this one is active already.

        An earlier incarnation whose lease has run out is retired first, its backlog settled.
        Instances inactive for more than a week are forgotten.
        """
        ...

    def look(self) -> ClusterState | None:
        """Return the cluster; None while nobody has ever joined."""
        ...

    def retire(self, judge: Incarnation) -> None:
        """Make instances whose lease has run out deactivating; complete backlogs, and end those.

        Does nothing unless the judge is active and more than half of its lease is left: one that
        was cut off together with the others must not outlive them by being back first. Leases
        that end later than they can (the clock was set back) are cut to their length.
        """
        ...

    def leave(self, who: Incarnation) -> None:
        """End the membership of this incarnation, if it is active."""
        ...

    def wait(self, seconds: float) -> bool:
        """Return true after a hint that something has changed, or `wake`; false after `seconds`."""
        ...

    def wake(self) -> None:
        """Let `wait` return, now or the next time; may be called by any thread."""
        ...

    def close(self) -> None:
        """Give the session back."""
        ...
