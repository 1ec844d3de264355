"""Kafka's messages as records of the journal."""

from typing import cast

from confluent_kafka import Message

from packhorse.messaging.api import Record


def as_record(message: Message, *, values: bool = True) -> Record:
    """Return the message as a record; of headers with one name the last counts."""
    key = message.key()
    return Record(
        topic=cast(str, message.topic()),
        partition=cast(int, message.partition()),
        offset=cast(int, message.offset()),
        time_ms=message.timestamp()[1],
        key=None if key is None else key.decode(errors="replace"),
        headers={name: _bytes(value) for name, value in _headers(message)},
        value=(message.value() or b"") if values else b"",
    )


def _headers(message: Message) -> list[tuple[str, str | bytes | None]]:
    return cast("list[tuple[str, str | bytes | None]]", message.headers() or [])


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
