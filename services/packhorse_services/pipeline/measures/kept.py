"""Which hours are kept as they were made, because what they were made of has expired since."""

from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from packhorse_services.pipeline import tables
from packhorse_services.pipeline.measures.changes import Sources
from packhorse_services.pipeline.measures.times import HOUR_MS, milliseconds

NOTHING = -(2**62)


def kept_before(sources: Sources, lanes: DataFrame, *, all_hours: bool) -> int:
    """Return the moment before which no hour may be made anew, in milliseconds; `NOTHING`: all may.

    Days that have expired leave their hours alone. With `all_hours` also later ones that told of
    packages of such days; without it, late rows are few and name packages that are there. The last
    hour that was made may always be made again, and what follows it has to be.
    """
    days = [each.whole_from for each in sources.versions.values() if each.whole_from is not None]
    last = lanes.agg(f.max(milliseconds(f.col("hour")))).collect()[0][0]
    if not days or last is None:
        return NOTHING
    begin = round(datetime.combine(max(days), datetime.min.time(), UTC).timestamp() * 1000)
    if all_hours:
        begin = max(begin, _of_expired_packages(sources))
    return min(begin, int(last))


def _of_expired_packages(sources: Sources) -> int:
    """Return the hour behind the last one in which something was told of an expired package."""
    packages = sources.all(tables.PACKAGES)
    kept = packages.groupBy("journal_id").agg(f.min("offset").alias("first"))
    first = f.broadcast(kept)
    said = sources.all(tables.STATUSES)
    decided = said.join(first, said["package_journal_id"] == first["journal_id"]).where(
        "package_offset < first"
    )
    lanes = sources.all(tables.ANNOUNCEMENTS).select("time", f.explode("lanes").alias("lane"))
    behind = lanes.join(first, f.col("lane.journal_id") == f.col("journal_id")).where(
        "lane.offset < first - 1"
    )
    times = decided.select(said["time"]).unionByName(behind.select("time"))
    last = times.agg(f.max(milliseconds(f.col("time")))).collect()[0][0]
    return NOTHING if last is None else (int(last) // HOUR_MS + 1) * HOUR_MS
