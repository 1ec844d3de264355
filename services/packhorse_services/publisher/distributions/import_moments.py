"""By when subscribers had imported a package: the first look at them that says so.

No subscriber but an editable one reports an import. What each announces is sampled once a minute.
"""

from collections.abc import Mapping, Sequence

from psycopg import AsyncConnection

from packhorse_services.publisher.queues.history import sample_rows
from packhorse_services.publisher.queues.queue import Queues


async def imported_by(
    connection: AsyncConnection,
    queues: Queues,
    offset: int,
    accepted_ms: float,
    names: Sequence[str],
) -> Mapping[str, int]:
    """Return by when, in milliseconds, these had imported the package at an offset; 0: not known.

    By a sample, else by what is announced now; nothing of a package that is older than samples are
    kept. Call it for those that have imported it.
    """
    if accepted_ms < queues.clock.wall_ms() - sample_rows.KEPT_S * 1000:
        return {}
    seen = {one.name: one.seen_ms for one in queues.subscribers.following()}
    return seen | await sample_rows.first_past(connection, queues.agent, offset, accepted_ms, names)
