"""Idempotency keys: a request that is sent again with its key has no second effect.

The key is written in the transaction of what it has led to, so both exist together or not at all.
Two requests with one key at the same time: the second waits for the first one's commit.
Every function is called in a transaction as the bookkeeper.
"""

import hashlib
from dataclasses import dataclass

from psycopg import Connection
from pydantic import BaseModel

from packhorse.errors import Permanent

KEPT_S = 86_400.0
"""How long a key is known."""


class RequestKeyReused(Permanent):
    """The key belongs to another request; use a new key for a new request."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The key that a caller has given to a request, and a digest of what was asked for."""

    caller: str
    key: str
    fingerprint: bytes


def request_key(
    caller: str, key: str | None, what: str, body: BaseModel | None = None
) -> RequestKey | None:
    """Return the key of a request; None when it has none."""
    if key is None:
        return None
    requested = f"{what}\n{body.model_dump_json() if body else ''}".encode()
    return RequestKey(caller, key, hashlib.sha256(requested).digest())


def take(connection: Connection, key: RequestKey) -> int | None:
    """Note a key; None when it is new, else what it has led to (`note`), or 0.

    Raises `RequestKeyReused`.
    """
    new = connection.execute(
        """
        INSERT INTO jobs.request_key (caller, key, fingerprint) VALUES (%s, %s, %s)
        ON CONFLICT (caller, key) DO NOTHING
        """,
        (key.caller, key.key, key.fingerprint),
    )
    if new.rowcount:
        return None
    row = connection.execute(
        "SELECT fingerprint, number FROM jobs.request_key WHERE caller = %s AND key = %s",
        (key.caller, key.key),
    ).fetchone()
    if row is None or row[0] != key.fingerprint:
        raise RequestKeyReused("this Idempotency-Key belongs to another request; use a new one")
    return row[1] or 0


def note(connection: Connection, key: RequestKey, number: int) -> None:
    """Note what a key has led to: the number of a job, or of the microsecond of a moment."""
    connection.execute(
        "UPDATE jobs.request_key SET number = %s WHERE caller = %s AND key = %s",
        (number, key.caller, key.key),
    )


def forget(connection: Connection, older_than_s: float, limit: int) -> int:
    """Remove up to `limit` keys older than that by the database's clock; returns how many."""
    return connection.execute(
        """
        DELETE FROM jobs.request_key WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM jobs.request_key
            WHERE created_at < clock_timestamp() - make_interval(secs => %s) LIMIT %s))
        """,
        (older_than_s, limit),
    ).rowcount
