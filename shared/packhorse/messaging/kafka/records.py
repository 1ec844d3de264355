"""Kafka's messages as records of the journal."""

from typing import Any

from confluent_kafka import Message

from packhorse.messaging.api import Record, damaged


def as_record(message: Message, *, values: bool = True) -> Record:
    """Return the message as a record; of headers with one name the last counts.

    One with a header whose name is not UTF-8 counts as damaged.
    """
    given: Any = message  # its types allow for what only a message that was made here can lack
    key = given.key()
    try:
        headers = dict(given.headers() or ())
    except (SystemError, UnicodeDecodeError):  # confluent-kafka 2.16.1 raises the first of them
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
