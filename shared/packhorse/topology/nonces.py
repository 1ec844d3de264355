"""Which signed requests were taken already, kept in the database: a restart forgets none."""

from psycopg import Connection

from packhorse.db.transactions import bookkeeping
from packhorse.topology.connector_keys import MAX_SKEW_S, SharedKeys
from packhorse.topology.rejection import Rejected, RejectionReason
from packhorse.topology.signing import LIFETIME_S, Signed, check_times

_KEPT_LONGER_S = MAX_SKEW_S + LIFETIME_S
"""As long as the signature holds for the most patient, and once more for a clock that is set."""

_FORGOTTEN_AT_ONCE = 20
"""Each request that is taken leaves one nonce and forgets up to so many, so no job need do it."""


def take(connection: Connection, signed: Signed, keys: SharedKeys) -> float:
    """Take a verified request once; return the database's time in seconds since 1970.

    Raises `Rejected` when it is not the time for it, or when it was taken before: of many that
    bring it at once, to whichever instances of the cluster, one succeeds.
    """
    with bookkeeping(connection):
        now = database_time(connection)
        check_times(signed, keys, now)
        connection.execute(_FORGET, (_FORGOTTEN_AT_ONCE,))
        new = connection.execute(
            "INSERT INTO topology.nonce (nonce, expires_at) VALUES (%s, to_timestamp(%s)) "
            "ON CONFLICT DO NOTHING",
            (signed.nonce, signed.expires + _KEPT_LONGER_S),
        )
    if not new.rowcount:
        raise Rejected(RejectionReason.REPLAY, "this request was taken before")
    return now


def database_time(connection: Connection) -> float:
    """Return the time of the database, in seconds since 1970."""
    [(now,)] = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()
    return float(now)


_FORGET = """
DELETE FROM topology.nonce WHERE nonce IN (
    SELECT nonce FROM topology.nonce WHERE expires_at < clock_timestamp()
    ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED)
"""
