"""The names of the pipeline's tables, below the place that `PACKHORSE_TABLES_URL` names.

Every one is a Delta table (ADR 0017). Their columns are in `schemas`.
"""

BRONZE = "bronze"
"""Every record of the five topics as the journal had it; by topic and day."""
QUARANTINE = "quarantine"
"""Records that could not be decoded, and why."""
GAPS = "gaps"
"""Holes that retention left before the archive came by, and that somebody accepted."""

PACKAGES = "silver/packages"
STATUSES = "silver/statuses"
COMMAND_STATUSES = "silver/command_statuses"
ANNOUNCEMENTS = "silver/announcements"
COMMANDS = "silver/commands"
EVENTS = "silver/events"

DELIVERY = "measures/delivery"
"""A row for each subscriber, publisher agent and hour."""
FAILURES = "measures/failures"
"""How often a subscriber failed for a reason, by hour."""
SLOWEST = "measures/slowest"
"""The paths that took longest, by subscriber and hour."""
PUBLISHING = "measures/publishing"
"""A row for each publisher agent and hour."""
LANES = "measures/lanes"
"""How far each lane was at the end of each hour."""
MEASURED = "measures/measured"
"""Up to which version of the silver tables the measures are made."""

BODIES = "bodies"
"""A blob store, not a table: bodies that went by reference, for as long as the archive keeps."""


def checkpoint(query: str) -> str:
    """Return where a streaming query keeps its checkpoint."""
    return f"checkpoints/{query}"


def bulk_parts(bulk_id: str) -> str:
    """Return the table of the packages that a bulk distribution has stored; one row a part."""
    return f"bulk/{bulk_id}/parts"


def bulk_cancelled(bulk_id: str) -> str:
    """Return the table that is there once a bulk distribution is cancelled."""
    return f"bulk/{bulk_id}/cancelled"
