"""What a lane works with in all its sessions, and how much it takes at once."""

from collections.abc import Callable
from dataclasses import dataclass, field

from packhorse.clock import Clock
from packhorse_services.subscriber.attempts import Attempts
from packhorse_services.subscriber.clearances import Clearances
from packhorse_services.subscriber.commands.control import LaneControl
from packhorse_services.subscriber.importer import Importer
from packhorse_services.subscriber.lane_report import LaneReport
from packhorse_services.subscriber.staging import Gate, OpenGate


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """How much one transaction takes when packages wait, and when passing over is stored."""

    packages: int = 256
    bytes: int = 8 * 1024**2
    passed: int = 1_000
    passed_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Desk:
    """What a lane works with in all its sessions."""

    importer: Importer
    attempts: Attempts
    clearances: Clearances
    report: LaneReport
    clock: Clock
    editable: bool = False
    limits: GroupLimits = GroupLimits()
    on_progress: Callable[[], None] = lambda: None
    gate: Gate = field(default_factory=OpenGate)
    control: LaneControl = field(default_factory=LaneControl)
