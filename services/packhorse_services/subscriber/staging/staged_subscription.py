"""What the golden subscriber reported about one agent's packages, a few bytes each.

That is a number for each offset, in blocks, for offsets that lie close together.
"""

from array import array
from dataclasses import dataclass, field

from packhorse.wire.messages import Status, StatusMessage
from packhorse_services.subscriber.journal.arrivals import Mark

_BLOCK = 4_096
_BLOCKS = 2_048
_FOUR_BYTES = "I"


class OffsetMap:
    """Bounded: of too many blocks the ones nearest to the base are kept (R30).

    `horizon` is the first offset of what was left out, None while everything is here.
    """

    def __init__(self, blocks: int = _BLOCKS) -> None:
        self._limit = blocks
        self._blocks: dict[int, array[int]] = {}
        self.base = -1
        self.horizon: int | None = None

    def put(self, offset: int, value: int) -> None:
        """Keep a value of 1 to 32 bits, unless the offset is not above the base or too far up."""
        if offset <= self.base or not self.reaches(offset):
            return
        number, index = divmod(offset, _BLOCK)
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = array(_FOUR_BYTES, bytes(4 * _BLOCK))
            if len(self._blocks) > self._limit:
                last = max(self._blocks)
                del self._blocks[last]
                self.horizon = last * _BLOCK
        block[index] = value

    def get(self, offset: int) -> int:
        """Return the value of an offset, 0 when it has none."""
        number, index = divmod(offset, _BLOCK)
        block = self._blocks.get(number)
        return block[index] if block else 0

    def reaches(self, offset: int) -> bool:
        """Return whether the map would know of this offset."""
        return self.horizon is None or offset < self.horizon

    def has_room(self) -> bool:
        """Return whether half of what may be kept is free."""
        return len(self._blocks) <= self._limit // 2

    def forget(self, offset: int) -> None:
        """Move the base up to `offset`; what is not above it may go."""
        before, self.base = self.base, max(self.base, offset)
        if before // _BLOCK != self.base // _BLOCK:
            kept = self.base // _BLOCK
            self._blocks = {number: b for number, b in self._blocks.items() if number >= kept}


_CODES = {status: code for code, status in enumerate(Status, start=1)}
_STATUSES = {code: status for status, code in _CODES.items()}
_CODE_BITS = 3
_HASH_MASK = (1 << 29) - 1
_REASONS = 1_000


@dataclass(slots=True)
class StagedSubscription:
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
        wanted = message.status is not Status.IMPORTED and offset > self.decided.base
        if wanted and len(self.reasons) < _REASONS:
            self.reasons[offset] = reason

    def status_of(self, mark: Mark) -> tuple[Status | None, bool]:
        """Return what was reported about an offset, and whether it was about this package."""
        known = self.decided.get(mark.offset)
        status = _STATUSES.get(known & (1 << _CODE_BITS) - 1)
        return status, known >> _CODE_BITS == _hash(mark.package_id)

    def forget(self, offset: int) -> None:
        """Forget what was reported about offsets up to this one."""
        self.decided.forget(offset)
        if self.reasons:
            self.reasons = {known: text for known, text in self.reasons.items() if known > offset}


def _hash(package_id: str) -> int:
    """Return some bits of a hash that nobody outside this process can aim at."""
    return hash(package_id) & _HASH_MASK
