"""The names of the pipeline's tables, below the place that `PACKHORSE_TABLES_URL` names.

Every one is a Delta table (ADR 0017). Their columns are in `schemas`.
"""

from collections.abc import Mapping

BRONZE = "bronze"
QUARANTINE = "quarantine"
GAPS = "gaps"

PACKAGES = "silver/packages"
STATUSES = "silver/statuses"
COMMAND_STATUSES = "silver/command_statuses"
ANNOUNCEMENTS = "silver/announcements"
COMMANDS = "silver/commands"
EVENTS = "silver/events"

DELIVERY = "measures/delivery"
FAILURES = "measures/failures"
SLOWEST = "measures/slowest"
PUBLISHING = "measures/publishing"
SUBSCRIPTIONS = "measures/subscriptions"
MEASURED = "measures/measured"

MEANINGS: Mapping[str, str] = {
    BRONZE: "Every record of the five topics as the journal had it",
    QUARANTINE: "Records that could not be decoded, and packages whose body was gone, with why",
    GAPS: "Holes that retention left before the archive came by",
    PACKAGES: "A row for each package: what publishers sent",
    STATUSES: "What became of packages at subscribers: a row for each status that one sent. Those "
    "that are not editable send none for what they import. A status that was sent twice is here "
    "twice",
    COMMAND_STATUSES: "What became of commands: a row for each state that a subscriber reported",
    ANNOUNCEMENTS: "A row for each announcement of a subscriber, at least every 10 s",
    COMMANDS: "A row for each command that an operator issued",
    EVENTS: "A row for each package that all live subscribers are done with",
    DELIVERY: "How a subscriber did: a row for each subscriber, publisher agent and hour in which "
    "it announced itself or something happened",
    FAILURES: "How often a subscriber failed, by hour and reason",
    SLOWEST: "The 20 packages that took a subscriber longest, by publisher agent and hour",
    PUBLISHING: "What was published: a row for each publisher agent and hour",
    SUBSCRIPTIONS: "How far each subscription was at the end of each hour; what the next run of "
    "`measures` begins with",
    MEASURED: "Up to which version of the archive's tables the measures are made",
}
"""What a row of a table is; Delta keeps it as the table's description."""

BODIES = "bodies"
"""A blob store, not a table: bodies that went by reference, for as long as the archive keeps."""


CHECKPOINTS = "checkpoints/archive"
"""Where the archive's query keeps its checkpoint, no table either."""

AUDITS, MARKS = "audit", "marks"
"""The folders below which each audit and each mark has one of its own."""


def bulk_parts(bulk_id: str) -> str:
    """Return the table of the packages that a bulk distribution has stored; one row a part."""
    return f"bulk/{bulk_id}/parts"


def bulk_cancelled(bulk_id: str) -> str:
    """Return the table that is there once a bulk distribution is cancelled."""
    return f"bulk/{bulk_id}/cancelled"
