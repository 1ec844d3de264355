"""What of bronze silver has not read yet, by silver's checkpoint: that must not expire."""

import json
from collections.abc import Iterator
from datetime import date

from pyspark.sql import SparkSession

from packhorse_services.pipeline.archive import silver
from packhorse_services.pipeline.archive.bronze import folder_of
from packhorse_services.pipeline.archive.checkpoint import progress_of
from packhorse_services.pipeline.errors import CheckpointCorrupt
from packhorse_services.pipeline.measures.changes import opened
from packhorse_services.pipeline.storage import arrow_files, tables
from packhorse_services.pipeline.storage.delta import SILVER, newest_turn
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.table_files import files_of


def first_unread(spark: SparkSession, location: Location) -> date | None:
    """Return the first day of which bronze may have records that silver has not; None: it has all.

    Silver has read what its last finished batch says. Without one, it has read nothing.
    """
    bronze = opened(location, tables.BRONZE)
    if bronze is None:
        return None
    everything = {one.day for one in files_of(bronze)}
    read = _read_below(spark, location)
    try:
        versions = range(read, bronze.version() + 1)
        found = everything if read < 0 else set(_added(location, versions))
    except FileNotFoundError:  # the table's log has forgotten these versions
        found = everything
    return min(found & everything, default=None)


def _read_below(spark: SparkSession, location: Location) -> int:
    """Return the version of bronze below which silver has read all; -1 when nobody knows."""
    turn = newest_turn(location, tuple(SILVER), silver.QUERY)
    if turn is None:
        return -1
    try:
        done = progress_of(folder_of(spark, location, turn))
    except CheckpointCorrupt:
        return -1
    if done is None or not isinstance(done.offset, dict) or done.offset.get("isStartingVersion"):
        return -1
    version = done.offset.get("reservoirVersion")
    return version if isinstance(version, int) else -1


def _added(location: Location, versions: range) -> Iterator[date]:
    """Yield the days of the files that versions have added; one that was only moved is none."""
    filesystem = arrow_files.filesystem(location)
    for version in versions:
        place = arrow_files.path(location, f"{tables.BRONZE}/_delta_log/{version:020}.json")
        with filesystem.open_input_file(place) as log:
            lines = log.read().splitlines()
        for line in lines:
            new = json.loads(line).get("add")
            if new is not None and new["dataChange"]:
                yield date.fromisoformat(new["partitionValues"]["day"])
