"""What audits and marks have left, a folder each; nobody goes on with one of days ago."""

import re
from datetime import UTC, date, datetime

from packhorse_services.pipeline.storage import arrow_files, tables
from packhorse_services.pipeline.storage.location import Location

_ID = re.compile(r"(?:audit|mark)-([0-9]{1,16})-[0-9a-f]{8}")
"""The id of an audit or a mark, with the millisecond in which it began."""


def old(location: Location, before: date) -> list[str]:
    """Return the folders of audits and marks that began before a day."""
    midnight_ms = int(datetime.combine(before, datetime.min.time(), UTC).timestamp() * 1000)
    found = (
        (f"{folder}/{name}", _ID.fullmatch(name))
        for folder in (tables.AUDITS, tables.MARKS)
        for name in arrow_files.names(location, folder)
    )
    return [folder for folder, begun in found if begun and int(begun[1]) < midnight_ms]


def forget(location: Location, before: date) -> int:
    """Delete these folders; returns how many there were."""
    there = old(location, before)
    for folder in there:
        arrow_files.filesystem(location).delete_dir(arrow_files.path(location, folder))
    return len(there)
