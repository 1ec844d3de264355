"""Ids of packages that the golden subscriber refused, for repeats that it did not report."""

from collections.abc import Iterator

from packhorse.wire.messages import Status

_KEPT = 10_000
_FILTER_BYTES = 1 << 21
_PROBES = 4
_HALF = 32


class Refusals:
    """Bounded (R30): the newest with their reasons, of all others that they may have been there.

    An id that is no longer kept is noted in a Bloom filter, which never loses one. After a million
    of them about one id in 500 seems to be there that is not.
    """

    def __init__(self, kept: int = _KEPT, filter_bytes: int = _FILTER_BYTES) -> None:
        self._kept = kept
        self._known: dict[str, tuple[Status, str]] = {}
        self._size = filter_bytes
        self._filter = bytearray()

    def take(self, package_id: str, status: Status, reason: str) -> None:
        """Take a status in the status topic's order; IMPORTED takes a refusal back."""
        self._known.pop(package_id, None)
        if status is Status.IMPORTED or not package_id:
            return
        self._known[package_id] = status, reason
        if len(self._known) > self._kept:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._blur(oldest)

    def get(self, package_id: str) -> tuple[Status, str] | None:
        """Return how a package was refused, when that is still kept."""
        return self._known.get(package_id)

    def may_have(self, package_id: str) -> bool:
        """Return whether it may have been refused though it isn't kept; false is certain."""
        return bool(self._filter) and all(
            self._filter[byte] & mask for byte, mask in self._bits(package_id)
        )

    def _blur(self, package_id: str) -> None:
        if not self._filter:
            self._filter = bytearray(self._size)
        for byte, mask in self._bits(package_id):
            self._filter[byte] |= mask

    def _bits(self, package_id: str) -> Iterator[tuple[int, int]]:
        first = hash(package_id) & (1 << 2 * _HALF) - 1
        step = first >> _HALF | 1
        for probe in range(_PROBES):
            byte, bit = divmod((first + probe * step) % (8 * self._size), 8)
            yield byte, 1 << bit
