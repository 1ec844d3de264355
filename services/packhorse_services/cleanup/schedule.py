"""When the cleanup runs by itself: every so often, or by a cron expression in UTC."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from croniter import croniter


@dataclass(frozen=True, slots=True)
class Schedule:
    """A period, or a cron expression when that is not empty."""

    period_s: float
    cron: str = ""

    def after(self, moment: datetime) -> datetime:
        """Return the first time of this schedule after `moment`."""
        if not self.cron:
            return moment + timedelta(seconds=self.period_s)
        found: datetime = croniter(self.cron, moment.astimezone(UTC)).get_next(datetime)
        return found
