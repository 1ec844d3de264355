"""A message with its producer's name, epoch and sequence, and the headers that say so.

Part of the library's deduplication (`deduplication`), for any program that appends to a topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from packhorse.errors import Permanent
from packhorse.messaging.api import Outgoing

PRODUCER_NAME = "producer-name"
PRODUCER_EPOCH = "producer-epoch"
PRODUCER_SEQUENCE = "producer-sequence"

MAX_NAME = 255
"""Characters of a producer's name."""

LARGEST = 2**53 - 1
"""The last epoch and sequence: far from what a database's bigint can't count on from (R30)."""

_DIGITS = 16


class BadNumber(Permanent):
    """The name, epoch or sequence is none; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Number:
    """Who numbered a message, and how."""

    producer: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Numbered:
    """A record to append, numbered by its producer. Raises `BadNumber`.

    The epoch is above 0, the sequence at least 0, both of 53 bits; a name has 1 to 255 printable
    characters.
    """

    producer: str
    epoch: int
    sequence: int
    record: Outgoing

    def __post_init__(self) -> None:
        if not _is_name(self.producer):
            raise BadNumber(f"a producer's name has 1 to {MAX_NAME} printable characters")
        if not 1 <= self.epoch <= LARGEST:
            raise BadNumber("a producer's epoch is from 1 to 2^53 - 1")
        if not 0 <= self.sequence <= LARGEST:
            raise BadNumber("a producer's sequence is from 0 to 2^53 - 1")

    @property
    def number(self) -> Number:
        """The number without the record."""
        return Number(self.producer, self.epoch, self.sequence)

    def outgoing(self, key: str | None) -> Outgoing:
        """Return the record with the number in its headers, under `key`."""
        headers = {
            **self.record.headers,
            PRODUCER_NAME: self.producer.encode(),
            PRODUCER_EPOCH: b"%d" % self.epoch,
            PRODUCER_SEQUENCE: b"%d" % self.sequence,
        }
        return replace(self.record, headers=headers, key=key)


def number_of(headers: Mapping[str, bytes]) -> Number | None:
    """Return the number in a record's headers, or None without one (R30).

    What is beyond `LARGEST` is none either: nobody gives such a number.
    """
    try:
        name = headers[PRODUCER_NAME].decode()
    except (KeyError, UnicodeDecodeError):
        return None
    epoch = _integer(headers.get(PRODUCER_EPOCH, b""))
    sequence = _integer(headers.get(PRODUCER_SEQUENCE, b""))
    if epoch is None or epoch < 1 or sequence is None or not _is_name(name):
        return None
    return Number(name, epoch, sequence)


def _integer(text: bytes) -> int | None:
    if not text.isdigit() or len(text) > _DIGITS:
        return None
    return value if (value := int(text)) <= LARGEST else None


def _is_name(name: str) -> bool:
    return 1 <= len(name) <= MAX_NAME and name.isprintable()
