"""A number for each offset above a floor, in blocks, for offsets that lie close together."""

from array import array

_BLOCK = 4_096
_BLOCKS = 2_048
_FOUR_BYTES = "I"


class OffsetMap:
    """Bounded: of too many blocks the ones nearest to the floor are kept (R30).

    `horizon` is the first offset of what was left out, None while everything is here.
    """

    def __init__(self, blocks: int = _BLOCKS) -> None:
        self._limit = blocks
        self._blocks: dict[int, array[int]] = {}
        self.floor = -1
        self.horizon: int | None = None

    def put(self, offset: int, value: int) -> None:
        """Keep a value of 1 to 32 bits, unless the offset is not above the floor or too far up."""
        if offset <= self.floor or not self.reaches(offset):
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
        """Tell whether the map would know of this offset."""
        return self.horizon is None or offset < self.horizon

    def has_room(self) -> bool:
        """Tell whether half of what may be kept is free."""
        return len(self._blocks) <= self._limit // 2

    def forget(self, offset: int) -> None:
        """Move the floor up to `offset`; what is not above it may go."""
        before, self.floor = self.floor, max(self.floor, offset)
        if before // _BLOCK != self.floor // _BLOCK:
            kept = self.floor // _BLOCK
            self._blocks = {number: b for number, b in self._blocks.items() if number >= kept}
