"""One instance's part in its cluster: the protocol of both stores, `lease` and `voting`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from packhorse.errors import Permanent, Transient
from packhorse.topology.view import ClusterView


class StoreUnavailable(Transient):
    """The store can't be asked now; the next heartbeat tries again."""


class DuplicateInstance(Permanent):
    """Another live process has the same instance id; give one of the two an id of its own."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one heartbeat has seen of the own cluster."""

    view: ClusterView | None
    """The agreed view, which the local instance is part of; None while there is none."""
    revision: str
    """Names this incarnation of the membership: the same on all instances, "" without a view."""
    settled: bool
    """All instances of the view know of it, and what a leaving one left behind is dealt with."""
    valid_until: float
    """Of the own monotonic clock: from then on, nobody may rely on the view any more."""


class Membership(Protocol):
    """Driven by one thread; a step never waits for other instances."""

    @property
    def instance_id(self) -> str:
        """The persistent id of the local instance."""
        ...

    @property
    def interval_s(self) -> float:
        """Seconds from one `beat` to the next."""
        ...

    def beat(self, properties: Mapping[str, str]) -> Observation:
        """Say that this instance is alive, with its properties, and look at the cluster.

        Raises `StoreUnavailable`, or `DuplicateInstance`: then it takes no part until the other
        one has gone, and later calls may succeed.
        """
        ...

    def acknowledge(self, revision: str) -> None:
        """Acknowledge with the next `beat` that nobody here relies on an older view.

        It is called once the local listeners got CHANGING, or had no view to rely on; an
        observation is settled once all instances of its view have acknowledged its revision.
        """
        ...

    def wait(self, seconds: float) -> bool:
        """Return true when something may have changed, false after `seconds` without a hint."""
        ...

    def wake(self) -> None:
        """Let `wait` return at once; may be called by any thread."""
        ...

    def leave(self) -> None:
        """Announce to the others that this instance ends; a store that is away is left alone."""
        ...
