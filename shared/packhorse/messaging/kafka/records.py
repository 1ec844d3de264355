"""Kafka's messages as records of the journal."""

from operator import methodcaller
from typing import Any

from confluent_kafka import Message

from packhorse.messaging.api import Record, damaged

# Message.headers (confluent-kafka 2.16.1) sets an error and returns a broken list for a name that
# is not UTF-8. A call from C checks for that and raises SystemError; a hot call from Python code
# does not (CPython 3.11 and later), and the process crashes on the list.
_headers_of = methodcaller("headers")


def as_record(message: Message, *, values: bool = True) -> Record:
    """Return the message as a record; of headers with one name the last counts.

    One with a header whose name is not UTF-8 counts as damaged.
    """
    given: Any = message  # its types allow for what only a message that was made here can lack
    key = given.key()
    try:
        headers = dict(_headers_of(given) or ())
    except (SystemError, UnicodeDecodeError):
        why = "the name of a header is not UTF-8"
        return damaged(given.topic(), given.partition(), given.offset(), why)
    if None in headers.values():
        headers = {name: value or b"" for name, value in headers.items()}
    return Record(
        given.topic(),
        given.partition(),
        given.offset(),
        given.timestamp()[1],
        None if key is None else key.decode(errors="replace"),
        headers,
        (given.value() or b"") if values else b"",
    )
