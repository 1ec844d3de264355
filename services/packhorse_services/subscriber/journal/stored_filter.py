"""The filter in the subscriber's database, from before the first import under it (R35)."""

import logging

from psycopg import Connection

from packhorse.bookkeeping.positions import read_filter, read_positions
from packhorse.packages.path_filter import PathFilter
from packhorse_services.subscriber.journal.failures import Fenced

logger = logging.getLogger(__name__)

_LEASE = "SELECT FROM bookkeeping.lease WHERE epoch = %s FOR UPDATE"
_STORE = """
    INSERT INTO bookkeeping.content_filter (include, exclude) VALUES (%s, %s)
    ON CONFLICT (singleton) DO UPDATE SET
        include = excluded.include, exclude = excluded.exclude, since = clock_timestamp()
"""


def store(connection: Connection, path_filter: PathFilter, *, epoch: int) -> None:
    """Store the filter if another one held before, and say what follows where that was used.

    Raises `Fenced` when `epoch` is not the lease's: who has it may hold by another filter.
    """
    with connection.transaction():
        before = PathFilter(*read_filter(connection))
        if before == path_filter:
            return
        if connection.execute(_LEASE, (epoch,)).rowcount != 1:
            raise Fenced("another worker has the lease of this database")
        connection.execute(_STORE, (list(path_filter.include), list(path_filter.exclude)))
        is_new = not read_positions(connection)
    if is_new:
        return
    logger.warning(
        "the filter has changed: what it takes since now is missing until it is distributed again "
        "(packhorse compare / --subscriber NAME --mend), what it leaves out since now stays",
        extra={
            "include": path_filter.include,
            "exclude": path_filter.exclude,
            "include_before": before.include,
            "exclude_before": before.exclude,
        },
    )
