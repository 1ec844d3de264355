"""How far a follower has read a topic: a text that its caller keeps."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Self

from packhorse.errors import Permanent
from packhorse.messaging.api import Record

_TEXT = re.compile(r"[0-9a-f]{16}(:\d{1,19}(\.[0-9a-f]{16})?)+")


class InvalidLogPosition(Permanent):
    """The text is no position that a `Follower` has given."""


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """What comes next in one partition, and which record was the last; empty: none yet."""

    next: int
    last: str = ""

    def __str__(self) -> str:
        return f"{self.next}.{self.last}" if self.last else str(self.next)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The mark of one topic of one journal, and the position in each of its partitions."""

    log: str
    partitions: tuple[PartitionPosition, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the position that a text stands for. Raises `InvalidLogPosition`."""
        if not isinstance(text, str) or not _TEXT.fullmatch(text):
            raise InvalidLogPosition(
                f"{str(text)[:100]!r} is no position; keep the texts that the follower gives"
            )
        log, *places = text.split(":")
        split = (place.partition(".") for place in places)
        return cls(log, tuple(PartitionPosition(int(at), last) for at, _, last in split))

    def __str__(self) -> str:
        return ":".join([self.log, *map(str, self.partitions)])

    def starts(self) -> Mapping[int, int]:
        """Return the offset of the next record of each partition."""
        return {number: one.next for number, one in enumerate(self.partitions)}

    def behind(self, record: Record) -> Self:
        """Return the position behind a record."""
        return self.at(record.partition, PartitionPosition(record.offset + 1, digest(record)))

    def at(self, partition: int, place: PartitionPosition) -> Self:
        """Return the position with another place in one partition."""
        before, after = self.partitions[:partition], self.partitions[partition + 1 :]
        return replace(self, partitions=(*before, place, *after))


def mark(identity: str) -> str:
    """Return what names a topic in positions; another one when it was created anew."""
    return blake2b(identity.encode(), digest_size=8).hexdigest()


def digest(record: Record) -> str:
    """Return what tells a record from another one at its offset; empty for a damaged one."""
    if record.damage:
        return ""
    said: Sequence[bytes] = [
        str(record.time_ms).encode(),
        (record.key or "").encode(),
        *(part for item in sorted(record.headers.items()) for part in (item[0].encode(), item[1])),
        record.value,
    ]
    counted = blake2b(digest_size=8)
    for part in said:
        counted.update(len(part).to_bytes(8, "big"))
        counted.update(part)
    return counted.hexdigest()
