"""Whether there is an archive at a place; who reads one must not make an empty one instead."""

from collections.abc import Collection

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from packhorse_services.pipeline.errors import TablesUnusable
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location, store_error


def archive_at(url: str, *, only_read: bool = False, or_else: Collection[str] = ()) -> Location:
    """Return the place that `url` names, where an archive, or one of some tables, is already.

    Makes nothing. Raises `TablesUnusable` when there is none, and for a folder that can't be
    written unless it is `only_read`; and what `store_error` returns.
    """
    location = Location.parse(url, only_read=True)
    if location.is_there() and not only_read:
        location.require_writable()
    if not any(_is_table(location, name) for name in (tables.BRONZE, *or_else)):
        raise TablesUnusable(
            f"there is no archive at {location.shown}; check PACKHORSE_TABLES_URL, or make one "
            "there with packhorse-pipeline archive"
        )
    return location


def _is_table(location: Location, name: str) -> bool:
    try:
        return DeltaTable.is_deltatable(location.delta_uri(name), location.delta_options())
    except (DeltaError, OSError) as error:
        raise store_error(f"{location.delta_uri(name)} can't be read", error) from error
