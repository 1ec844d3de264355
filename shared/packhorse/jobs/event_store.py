"""Stored events: written inside the transaction that they report, read by every instance.

When it commits they are delivered, however long it takes; when it rolls back they never were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from psycopg import Connection

from packhorse.jobs.channels import EVENTS
from packhorse.jobs.event import APPLICATION, DISTRIBUTE
from packhorse.jobs.names import InvalidProperties, require_properties, require_topic


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be stored for all instances.

    `application` is the instance that it comes from, which does not get it again; with `echo` it
    does, as its own.
    """

    topic: str
    application: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    echo: bool = False


def record(connection: Connection, events: Sequence[NewEvent], *, hint: bool = True) -> None:
    """Store events in the caller's transaction, whose role is the bookkeeper's.

    The mark for distribution is left out. `hint` notifies the others with the commit; commits that
    notify wait for each other, and without it the others find the events within a second or so.
    Raises `InvalidName` or `InvalidProperties`, before anything is written.
    """
    if not events:
        return
    rows = [_as_row(event) for event in events]
    # One parameter: an array of each column costs several times as much to make.
    connection.execute(
        """
        INSERT INTO jobs.event (topic, application, properties, echo)
        SELECT row ->> 0, row ->> 1, row -> 2, (row -> 3)::boolean
        FROM jsonb_array_elements(%s::jsonb) WITH ORDINALITY AS given (row, place)
        ORDER BY place
        """,
        ((b"[" + b",".join(rows) + b"]").decode(),),
    )
    if hint:
        notify(connection)


def _as_row(event: NewEvent) -> bytes:
    """Return the event as a JSON array of the columns that are written."""
    return b"[%b,%b,%b,%b]" % (
        orjson.dumps(require_topic(event.topic)),
        orjson.dumps(event.application),
        as_json(event.properties),
        orjson.dumps(event.echo),
    )


def notify(connection: Connection) -> None:
    """Say that there are new events, once the transaction commits."""
    connection.execute("SELECT pg_notify(%s, '')", (EVENTS,))


def as_json(properties: Mapping[str, Any]) -> bytes:
    """Return properties as they are stored, without the mark. Raises `InvalidProperties`."""
    if APPLICATION in properties:
        raise InvalidProperties(f"{APPLICATION} is set by packhorse, never by a sender")
    stored = {name: value for name, value in properties.items() if name != DISTRIBUTE}
    return orjson.dumps(require_properties(stored))
