"""What a scan finds, and the shape of what runs on the executors."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from packhorse.blobs.api import StoredBlob, binary_key
from packhorse.content.node import Binary

_SEEN_AT_MOST = 100_000


class FindingKind(StrEnum):
    """What a source says of a key."""

    REFERENCE = "reference"
    """Somebody refers to this binary."""
    NAME = "name"
    """Somebody names this stored package, and may still ask for it."""
    IN_LOG = "in_log"
    """A record of the log has its body under this key."""
    READ = "read"
    """The blob was read, and its references are among those found."""
    UNREADABLE = "unreadable"
    """The blob is no stored body, or a damaged one; it stays until somebody has looked at it."""


@dataclass(frozen=True, slots=True)
class Found:
    """One finding of a scan."""

    kind: FindingKind
    key: str


Scan = Callable[[Any], Iterator[Found]]
"""Reads one piece of a source, and yields what it refers to.

Runs on executors, so it opens what it needs itself; any error means that nothing is known of the
piece.
"""


class BlobScan(Protocol):
    """Finds blobs that refer to others, and reads them. Runs on executors, as a `Scan` does."""

    def listed(self, piece: Any, /) -> Iterator[StoredBlob]:
        """Yield the blobs of a piece, as they are now."""
        ...

    def read(self, blobs: Iterator[StoredBlob], /) -> Iterator[tuple[StoredBlob, Found]]:
        """Yield what each blob refers to, and then that it was `READ`.

        As long as a blob stays as it was listed it refers to the same. Any error means that nothing
        is known of them.
        """
        ...


def references(binaries: Iterable[Binary]) -> Iterator[Found]:
    """Yield the findings that binaries are.

    Marks remember them by blob: who finds more in a node changes `spark_report`'s `_REMEMBERED`.
    """
    for binary in binaries:
        yield Found(FindingKind.REFERENCE, binary_key(binary.sha256))


def once(found: Iterable[Found]) -> Iterator[Found]:
    """Leave out what came a short while ago; memory is bounded, so some comes again."""
    seen: set[Found] = set()
    for one in found:
        if one not in seen:
            if len(seen) >= _SEEN_AT_MOST:
                seen.clear()
            seen.add(one)
            yield one


def evenly(start: int, end: int, parts: int, at_least: int) -> list[tuple[int, int]]:
    """Return up to `parts` ranges that cover `start` to `end`, none but the last too small."""
    if end <= start:
        return []
    size = max(at_least, -(-(end - start) // parts))
    edges = [*range(start, end, size), end]
    return list(itertools.pairwise(edges))
