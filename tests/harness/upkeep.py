"""What upkeep beside other tasks is held to."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from packhorse_services.pipeline.storage import tables
from tests.harness.archive_site import ArchiveSite

ROUNDS = 10
_SILVER = (tables.PACKAGES, tables.STATUSES, tables.COMMAND_STATUSES, tables.EVENTS)


def tomorrow() -> datetime:
    """Return a time at which today is a finished day."""
    return datetime.now(UTC) + timedelta(days=1)


def require_whole(site: ArchiveSite) -> None:
    """Fail unless bronze is the journal, and silver has each record of bronze once."""
    site.require_equal_sets()
    records = Counter(
        (row["topic"], row["partition"], row["offset"]) for row in site.rows("bronze")
    )
    found: Counter[str] = Counter()
    for table in _SILVER:
        rows = site.rows(table)
        places = {(row["partition"], row["offset"]) for row in rows}
        assert len(places) == len(rows), f"a record is in {table} twice"
        found[table] = len(rows)
    assert sum(found.values()) == len(records), "silver lacks records"
