"""What the golden subscriber told of one agent's packages, a few bytes each."""

from dataclasses import dataclass, field

from packhorse.wire.messages import Status, StatusMessage
from packhorse_services.subscriber.arrivals import Mark
from packhorse_services.subscriber.offset_map import OffsetMap

_CODES = {status: code for code, status in enumerate(Status, start=1)}
_STATUSES = {code: status for status, code in _CODES.items()}
_CODE_BITS = 3
_HASH_MASK = (1 << 29) - 1
_REASONS = 1_000


@dataclass(slots=True)
class StagedLane:
    """What the golden subscriber did with one agent's packages above our position."""

    journal_id: str
    decided: OffsetMap = field(default_factory=OffsetMap)
    reasons: dict[int, str] = field(default_factory=dict)
    proven: int = -1
    """Each status up to this offset that the status topic still holds has been read."""

    def take(self, message: StatusMessage, reason: str) -> None:
        """Take a status of this agent and journal, in the status topic's order."""
        offset = message.offset
        self.decided.put(offset, _hash(message.package_id) << _CODE_BITS | _CODES[message.status])
        self.reasons.pop(offset, None)
        wanted = message.status is not Status.IMPORTED and offset > self.decided.floor
        if wanted and len(self.reasons) < _REASONS:
            self.reasons[offset] = reason

    def told_of(self, mark: Mark) -> tuple[Status | None, bool]:
        """Return what was told of an offset, and whether it was told of this package."""
        known = self.decided.get(mark.offset)
        status = _STATUSES.get(known & (1 << _CODE_BITS) - 1)
        return status, known >> _CODE_BITS == _hash(mark.package_id)

    def forget(self, offset: int) -> None:
        """Forget what was told of offsets up to this one."""
        self.decided.forget(offset)
        if self.reasons:
            self.reasons = {known: text for known, text in self.reasons.items() if known > offset}


def _hash(package_id: str) -> int:
    """Return some bits of a hash that nobody outside this process can aim at."""
    return hash(package_id) & _HASH_MASK
