"""Sessions that are tied to a run of a program or a worker, whose process may be paused.

Such a process keeps its connections, and with them the locks that others wait for. The time limits
of Postgres come late, and not at all inside a pipeline, in a COPY, or while a result is received:
there the server takes its client for an active one. So a session, or a transaction, takes a shared
advisory lock that is named after its run. Whoever finds that the run's lease is over ends the
sessions that have it; a run that goes on connects anew.
"""

from collections.abc import Iterable

from psycopg import Connection

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as

_OF_RUN = "hashtextextended({}, 7237118983466215795)"
_THIS_RUN = _OF_RUN.format("%s")


def tie_session(connection: Connection, runtime_id: str) -> None:
    """Let the session end when the run's lease is over, and the locks that it holds with it."""
    connection.execute(f"SELECT pg_advisory_lock_shared({_THIS_RUN})", (runtime_id,))


def tie_transaction(connection: Connection, runtime_id: str) -> None:
    """Let the session end when the run's lease is over before this transaction."""
    connection.execute(f"SELECT pg_advisory_xact_lock_shared({_THIS_RUN})", (runtime_id,))


def end_sessions(connection: Connection, runtime_ids: Iterable[str]) -> None:
    """End other sessions that are tied to these runs, in a transaction of the bookkeeper.

    Where this login may not end them, the time limit on idle transactions does.
    """
    connection.execute("SET LOCAL ROLE NONE")
    connection.execute(
        f"""
        SELECT pg_terminate_backend(a.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (l.classid::bigint << 32 | l.objid::bigint) IN (
            SELECT {_OF_RUN.format("id")} FROM unnest(%s::text[]) AS run (id))
        AND a.usename = session_user AND a.pid <> pg_backend_pid()
        """,  # noqa: S608
        (list(runtime_ids),),
    )
    act_as(connection, BOOKKEEPER)
