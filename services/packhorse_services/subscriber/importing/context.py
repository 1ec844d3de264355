"""What a subscription works with in all its sessions, and how much it takes at once."""

from dataclasses import dataclass, field
from typing import Protocol

from packhorse.clock import Clock
from packhorse_services.subscriber.announce.subscription_report import SubscriptionReport
from packhorse_services.subscriber.commands.clear_commands import ClearCommands
from packhorse_services.subscriber.commands.control import SubscriptionControl
from packhorse_services.subscriber.importing.attempts import Attempts
from packhorse_services.subscriber.importing.imported_ids import ImportedIds
from packhorse_services.subscriber.importing.importer import Importer
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.staging.staging import Gate, OpenGate


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """How much one transaction takes when packages wait, and when passing over is stored."""

    packages: int = 256
    bytes: int = 8 * 1024**2
    passed_s: float = 1.0


class ProgressListener(Protocol):
    """Is notified that a subscription has come further, or can't."""

    def __call__(self, *, awaited: bool = False) -> None:
        """Take note; `awaited` says that somebody waits for what was imported."""
        ...


def _nobody(*, awaited: bool = False) -> None:
    """Notify nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """The collaborators and limits that all sessions of one subscription share."""

    importer: Importer
    attempts: Attempts
    clears: ClearCommands
    report: SubscriptionReport
    clock: Clock
    editable: bool = False
    limits: GroupLimits = GroupLimits()
    on_progress: ProgressListener = _nobody
    gate: Gate = field(default_factory=OpenGate)
    control: SubscriptionControl = field(default_factory=SubscriptionControl)
    imported: ImportedIds = field(default_factory=ImportedIds)

    def wait_s(self, mark: Mark, agent: str) -> float:
        """Return the seconds until the package in front may be tried: 0 after a command."""
        self.attempts.retry_after(mark, self.control.command_id(agent))
        return self.attempts.wait_s(mark)
