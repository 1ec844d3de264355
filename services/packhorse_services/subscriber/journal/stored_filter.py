"""The filter in the subscriber's database, from before the first import under it (R35)."""

import logging
from dataclasses import asdict

from psycopg import Connection
from psycopg.types.json import Jsonb

from packhorse.bookkeeping.positions import read_filter, read_positions
from packhorse.packages.path_filter import PathFilter
from packhorse_services.subscriber.journal.failures import Fenced

logger = logging.getLogger(__name__)

_LEASE = "SELECT FROM bookkeeping.lease WHERE epoch = %s FOR UPDATE"
_STORE = """
    INSERT INTO bookkeeping.content_filter (include, exclude, map_paths, exclude_properties)
    VALUES (%s, %s, %s, %s)
    ON CONFLICT (singleton) DO UPDATE SET
        include = excluded.include, exclude = excluded.exclude, map_paths = excluded.map_paths,
        exclude_properties = excluded.exclude_properties, since = clock_timestamp()
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
        paths, mapped = (path_filter.include, path_filter.exclude), dict(path_filter.map_paths)
        row = (*map(list, paths), Jsonb(mapped), list(path_filter.exclude_properties))
        connection.execute(_STORE, row)
        is_new = not read_positions(connection)
    if is_new:
        return
    logger.warning(
        "the filter has changed: what it takes or maps otherwise since now is missing there until "
        "it is distributed again (packhorse compare / --subscriber NAME --mend); what it leaves "
        "out since now, or has mapped otherwise before, stays",
        extra={"filter": asdict(path_filter), "filter_before": asdict(before)},
    )
