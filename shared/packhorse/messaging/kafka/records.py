"""Kafka's messages as records of the journal."""

from typing import Any

from confluent_kafka import Message

from packhorse.messaging.api import Record


def as_record(message: Message, *, values: bool = True) -> Record:
    """Return the message as a record; of headers with one name the last counts."""
    given: Any = message  # its types allow for what only a message that was made here can lack
    key = given.key()
    headers = dict(given.headers() or ())
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
