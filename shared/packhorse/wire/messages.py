"""The messages that the services exchange through the journal, one dataclass each.

Nobody changes one. Those of a package are not frozen, which would triple the cost of making them.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Action(enum.Enum):
    """What a distribution does to the paths."""

    ADD = "ADD"
    DELETE = "DELETE"
    TEST = "TEST"
    INVALIDATE = "INVALIDATE"


class Status(enum.Enum):
    """What became of a package at a subscriber."""

    IMPORTED = "IMPORTED"
    REMOVED = "REMOVED"
    REMOVED_FAILED = "REMOVED_FAILED"
    SKIPPED = "SKIPPED"
    DUPLICATE = "DUPLICATE"
    """Not imported: its number is that of a package that was processed before (R27)."""


class SubscriptionState(enum.Enum):
    """What a subscriber does with the packages of one publisher agent (R13, R16, R24)."""

    RUNNING = "RUNNING"
    IDLE = "IDLE"
    BLOCKED = "BLOCKED"
    GAP = "GAP"
    JOURNAL_MISMATCH = "JOURNAL_MISMATCH"
    WAITING_FOR_LEASE = "WAITING_FOR_LEASE"
    WAITING_FOR_JOURNAL = "WAITING_FOR_JOURNAL"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    WAITING_FOR_SUBSCRIBER = "WAITING_FOR_SUBSCRIBER"
    LOADING = "LOADING"


class DesiredState(enum.Enum):
    """What an operator wants of a subscription."""

    RUN = "RUN"
    PAUSE = "PAUSE"
    STOP = "STOP"


class CommandState(enum.Enum):
    """What became of a command at its subscriber."""

    SEEN = "SEEN"
    APPLIED = "APPLIED"
    REJECTED = "REJECTED"


@dataclass(slots=True, unsafe_hash=True)
class PackageEntry:
    """A package without its body: what a queue shows (R17)."""

    package_id: str
    publisher_agent: str
    action: Action
    paths: tuple[str, ...] = ()
    deep_paths: tuple[str, ...] = ()
    user: str = ""
    producer: str = ""
    epoch: int = 0
    sequence: int = 0
    body_length: int = 0
    node_count: int = 0
    accepted_ms: int = 0
    range_from: str = ""
    """Of an ADD of one deep path: it carries only the paths from here on, by bytes; empty: all."""
    range_to: str = ""
    """And only the paths below this one, by bytes; empty: to the end."""
    targets: tuple[str, ...] = ()
    """The subscribers that it is for; empty: all (R35)."""

    def is_for(self, subscriber: str) -> bool:
        """Return whether a subscriber is one of those."""
        return not self.targets or subscriber in self.targets


@dataclass(slots=True, unsafe_hash=True)
class PackageBody:
    """The content of an ADD package: compressed nodes, inline or by reference (R7)."""

    sha256: bytes
    """Of the body as stored, 32 bytes."""
    content_length: int
    """Bytes once decompressed."""
    inline: bytes | None = None
    reference: str | None = None
    content: bytes | None = field(default=None, repr=False, compare=False)
    """What `inline` holds, verified and decompressed, where that was done ahead; never sent."""


AWAITED = "awaited"
"""Metadata of a package that somebody waits for, so that its import is announced at once."""


@dataclass(slots=True, unsafe_hash=True)
class PackageMessage:
    """What one distribution action carries; `body` is None for all but ADD."""

    entry: PackageEntry
    body: PackageBody | None = None
    publisher_instance: str = ""
    package_type: str = "packhorse/1"
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """What became of the package at `offset`; a repeat of it means nothing new (R9)."""

    subscriber: str
    publisher_agent: str
    journal_id: str
    """The package topic's, whose offset this is."""
    offset: int
    status: Status
    package_id: str = ""
    attempts: int = 0
    reason: str = ""
    command_id: str = ""
    decided_ms: int = 0
    subscriber_instance: str = ""
    left_out: bool = False
    """SKIPPED because it is not for this subscriber: it is there wherever it is wanted (R35)."""


@dataclass(frozen=True, slots=True)
class SubscriberState:
    """One subscription of an announcement.

    `offset` is the last processed one, -1 before the first.
    """

    publisher_agent: str
    offset: int
    retries: int = 0
    state: SubscriptionState = SubscriptionState.RUNNING
    last_error: str = ""
    next_attempt_ms: int = 0
    blocked_since_ms: int = 0
    journal_id: str = ""
    epoch: int = 0
    settled_offset: int = -1
    """Every status up to this offset is in the status topic."""
    started_offset: int = -1
    """The subscription has imported nothing up to this offset: it began behind it."""
    package_id: str = ""
    """Of the record at `offset`, as the subscription has processed it; empty when that is not
    known."""
    incomplete: bool = False
    """Nothing brought what was there up to `started_offset`, as a snapshot would have."""


MAX_FILTER_BYTES = 16 * 1024
"""Of all paths and names of a subscriber's filter together: each announcement has them."""


@dataclass(frozen=True, slots=True)
class DiscoveryMessage:
    """A subscriber's announcement of itself, sent every 10 s and after each batch."""

    subscriber: str
    states: tuple[SubscriberState, ...]
    editable: bool = False
    max_retries: int = -1
    endpoint: str = ""
    announced_ms: int = 0
    subscriber_instance: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    """Paths that it takes, none for all, and paths that it leaves out (R35)."""
    map_paths: tuple[tuple[str, str], ...] = ()
    """Paths of the author, and where they lie at the subscriber."""
    exclude_properties: tuple[str, ...] = ()
    """Names of properties that it leaves out; a `*` ends one for any rest."""


@dataclass(frozen=True, slots=True)
class ClearCommand:
    """Remove what `subscriber` has still to import from `publisher_agent`, up to `offset` (R19)."""

    command_id: str
    subscriber: str
    publisher_agent: str
    offset: int
    user: str = ""
    issued_ms: int = 0
    journal_id: str = ""


@dataclass(frozen=True, slots=True)
class ControlCommand:
    """Run, pause or stop the subscription of `publisher_agent` at `subscriber`, until changed."""

    command_id: str
    subscriber: str
    publisher_agent: str
    desired: DesiredState
    user: str = ""
    issued_ms: int = 0
    journal_id: str = ""


@dataclass(frozen=True, slots=True)
class ResetCommand:
    """Move the offset of a stopped subscription to `offset`; the package behind it comes next."""

    command_id: str
    subscriber: str
    publisher_agent: str
    offset: int
    user: str = ""
    issued_ms: int = 0
    journal_id: str = ""


@dataclass(frozen=True, slots=True)
class RetryCommand:
    """Try the package in front of a subscription again at once; the back-off begins anew."""

    command_id: str
    subscriber: str
    publisher_agent: str
    user: str = ""
    issued_ms: int = 0
    journal_id: str = ""


Command = ClearCommand | ControlCommand | ResetCommand | RetryCommand


@dataclass(frozen=True, slots=True)
class CommandStatusMessage:
    """What became of a command; a repeat of it means nothing new."""

    command_id: str
    subscriber: str
    publisher_agent: str
    state: CommandState
    removed: int = 0
    """Packages that a clear has removed; known with APPLIED."""
    reason: str = ""
    decided_ms: int = 0
    subscriber_instance: str = ""


@dataclass(frozen=True, slots=True)
class PackageDistributed:
    """Published on the event topic once every live subscriber is done with a package.

    Subscribers that did not import it are named by what they did instead.
    """

    package_id: str
    publisher_agent: str
    offset: int
    paths: tuple[str, ...] = ()
    deep_paths: tuple[str, ...] = ()
    action: str = ""
    imported: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    """Stale when the event was sent; they get the package when they come back."""
    state: str = ""
    """DISTRIBUTED when every subscriber has imported it, else PARTLY_DISTRIBUTED."""


Message = (
    PackageMessage
    | StatusMessage
    | DiscoveryMessage
    | Command
    | CommandStatusMessage
    | PackageDistributed
)
