"""Idempotency keys: what a caller's key has led to, kept a day in the outbox's own database.

Keys are written in the transaction of the outbox row and under the append lock, so a key and its
package exist together or not at all, and no two publishers ever answer one key twice (R5).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection

from packhorse.errors import Permanent, Transient
from packhorse_services.publisher.outbox.request import DistributionRequest, Pending


class KeyReused(Permanent):
    """The key belongs to another request; use a new key for a new request."""


class KeyInProgress(Transient):
    """The first request with this key is not answered yet; ask again shortly."""


@dataclass(frozen=True, slots=True)
class KnownKey:
    """What a key has led to; `offset` is None until the journal has the package.

    It stays when the log has forgotten the package.
    """

    fingerprint: bytes
    package_id: str
    offset: int | None


CallerKey = tuple[str, str]
"""The caller and the key: two callers may use the same key."""


def key_of(request: DistributionRequest) -> CallerKey | None:
    """Return the request's key, or None when it has none."""
    key = request.idempotency_key
    return None if key is None else (request.caller, key)


def keys_of(group: Iterable[Pending]) -> list[CallerKey]:
    """Return the keys of those requests that have one."""
    return [key for pending in group if (key := key_of(pending.request))]


_FIND = """
    SELECT known.caller, known.key, known.fingerprint, known.package_id,
        coalesce(outbox.log_offset, known.log_offset)
    FROM unnest(%s::text[], %s::text[]) AS wanted (caller, key)
    JOIN bookkeeping.idempotency_key AS known
        ON known.agent = %s AND known.caller = wanted.caller AND known.key = wanted.key
    LEFT JOIN bookkeeping.outbox ON outbox.package_id = known.package_id
"""


def find(
    connection: Connection, agent: str, keys: Sequence[CallerKey]
) -> dict[CallerKey, KnownKey]:
    """Return what is known of `keys`."""
    return known_of(connection.execute(*finding(agent, keys)).fetchall()) if keys else {}


def finding(agent: str, keys: Sequence[CallerKey]) -> tuple[LiteralString, list[Any]]:
    """Return the statement of `find`, for `known_of` to read its rows."""
    return _FIND, [[caller for caller, _ in keys], [key for _, key in keys], agent]


def known_of(rows: Iterable[Any]) -> dict[CallerKey, KnownKey]:
    """Return what the rows of `finding` say."""
    return {
        (caller, key): KnownKey(fingerprint, package_id, offset)
        for caller, key, fingerprint, package_id, offset in rows
    }


def reserve(
    connection: Connection, agent: str, key: CallerKey, fingerprint: bytes, package_id: str
) -> bool:
    """Note what a key has led to before there is a package; returns whether it was free.

    Waits for a transaction that takes the same key.
    """
    taken = connection.execute(
        "INSERT INTO bookkeeping.idempotency_key (agent, caller, key, fingerprint, package_id) "
        "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
        (agent, *key, fingerprint, package_id),
    )
    return taken.rowcount == 1


def forget(
    connection: Connection, agent: str, older_than_s: float, abandoned_s: float, limit: int
) -> int:
    """Remove up to `limit` keys of an agent older than that by the database's clock.

    Returns how many; also others' that are older than `abandoned_s`, which is longer.
    """
    return connection.execute(
        """
        DELETE FROM bookkeeping.idempotency_key WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM bookkeeping.idempotency_key
            WHERE created_at < clock_timestamp() - make_interval(secs => %s)
                AND (agent = %s OR created_at < clock_timestamp() - make_interval(secs => %s))
            LIMIT %s))
        """,
        (older_than_s, agent, abandoned_s, limit),
    ).rowcount
