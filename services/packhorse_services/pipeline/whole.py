"""From which day on a table is whole: upkeep notes in its log what it has let go."""

from datetime import date

from deltalake import DeltaTable

EXPIRED = "packhorse-upkeep-expired"
"""The id under which commits that delete days say up to which; its version is the day's number."""


def number_of(day: date) -> int:
    """Return the number that stands for a day."""
    return day.toordinal()


def whole_from(table: DeltaTable) -> date | None:
    """Return the first day from which on a table has all that it ever had; None: it has all."""
    number = table.transaction_version(EXPIRED)
    return None if number is None else date.fromordinal(number)
