"""The session of a member: never waited on for longer than a lease can spare."""

from functools import partial

import psycopg

from packhorse.db.engine import Timeouts
from packhorse.topology.patience import bookkeeper_connection
from packhorse.topology.store_session import StoreSession

_APPLICATION = "packhorse-topology"
"""The session's name in the database."""


def lease_session(url: str, patience_s: float) -> StoreSession:
    """Return a session of which all errors are `StoreUnavailable`.

    A commit is not waited for until it is on disk, unless its transaction says so.
    """
    milliseconds = int(patience_s * 1000)
    limits = Timeouts(milliseconds * 3 // 4, milliseconds // 2, milliseconds)
    connect = partial(
        bookkeeper_connection,
        url,
        _APPLICATION,
        patience_s,
        prepare_threshold=1,
        connect_timeout=str(max(2, int(patience_s))),
        tcp_user_timeout=str(milliseconds),
        session=limits.settings
        | {"synchronous_commit": "off", "plan_cache_mode": "force_generic_plan"},
    )
    return StoreSession(connect, away=(psycopg.Error,), trusted=True)
