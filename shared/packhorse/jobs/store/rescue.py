"""Rescue: jobs whose worker's lease is over become anybody's again.

Called by every worker every few seconds, in a READ COMMITTED transaction of its own as the
bookkeeper: it writes statistics of other instances, which wait for nobody who waits for them.
"""

from psycopg import Connection

from packhorse.db.run_sessions import end_sessions
from packhorse.jobs.store import statistics
from packhorse.jobs.store.ending_rows import lock_lost
from packhorse.jobs.store.endings import EndDecision
from packhorse.jobs.store.finishing import end_lost
from packhorse.jobs.store.leases import LEASE_S

_CUT = """
    UPDATE jobs.worker SET lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
    WHERE lease_until > clock_timestamp() + make_interval(secs => %(lease_s)s)
"""
"""No lease ends later than it can: they do when the database's clock was set back."""


def rescue(
    connection: Connection, limit: int = 100, *, lease_s: float = LEASE_S
) -> list[EndDecision]:
    """Take a batch of jobs from workers without a lease; call again while it is full.

    Ends the sessions of these workers, which may be paused, and hold what they would claim or end.
    The attempt counts and is remembered as LOST; the next one is flagged `retry`. Passes over jobs
    that a transaction holds (`claims.check`): whatever that does, it commits or ends with its
    session. A lease lasts `lease_s` at most.
    """
    connection.execute(_CUT, {"lease_s": lease_s})
    over = connection.execute(
        "SELECT runtime_id FROM jobs.worker WHERE lease_until <= clock_timestamp()"
    ).fetchall()
    if over:
        end_sessions(connection, [runtime_id for (runtime_id,) in over])
    return end_lost(connection, lock_lost(connection, limit))


def forget_workers(connection: Connection, after_s: float = 3600.0) -> int:
    """Forget runs that have been without a lease for so long, and fold old statistics.

    Returns how many runs; also those whose jobs are not rescued yet, which still will be.
    """
    statistics.fold(connection)
    forgotten = connection.execute(
        "DELETE FROM jobs.worker WHERE lease_until < clock_timestamp() - make_interval(secs => %s)",
        (after_s,),
    )
    return forgotten.rowcount
