"""Pages of jobs: where one ends and the next begins, as a text that clients only hand back."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from packhorse.errors import Permanent
from packhorse.jobs.job import Job

MAX_LIMIT = 1_000
"""Jobs of one page."""


class InvalidPage(Permanent):
    """A cursor that packhorse did not give, or a limit out of bounds; the text says which."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs: unfinished ones oldest first, then history newest first."""

    jobs: tuple[Job, ...]
    after: str | None
    """The cursor of the page behind this one; None where nothing is behind it."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A page begins behind the unfinished job with this number."""

    number: int


@dataclass(frozen=True, slots=True)
class HistoryStart:
    """A page begins behind the job that was finished then; None: with the newest."""

    finished_at: datetime | None = None
    number: int = 0


Place = Unfinished | HistoryStart
START = Unfinished(0)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"u-(\d{1,18})|h(?:-(\d{1,17})-(\d{1,18}))?", re.ASCII)


def place_behind(job: Job) -> Place:
    """Return the place behind a job."""
    if job.finished_at is None:
        return Unfinished(job.number)
    return HistoryStart(job.finished_at, job.number)


def write_cursor(place: Place) -> str:
    """Return a place as the text that clients have."""
    if isinstance(place, Unfinished):
        return f"u-{place.number}"
    if place.finished_at is None:
        return "h"
    microseconds = (place.finished_at - _EPOCH) // timedelta(microseconds=1)
    return f"h-{microseconds}-{place.number}"


def read_cursor(text: str | None) -> Place:
    """Return the place that a client names, the first one for None. Raises `InvalidPage`."""
    if text is None:
        return START
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidPage("the cursor is none that was given here; begin without one")
    unfinished, microseconds, number = found.groups()
    if unfinished is not None:
        return Unfinished(int(unfinished))
    if microseconds is None:
        return HistoryStart()
    return HistoryStart(_EPOCH + timedelta(microseconds=int(microseconds)), int(number))


def require_limit(limit: int, most: int = MAX_LIMIT) -> int:
    """Return a limit as it is. Raises `InvalidPage`."""
    if not 1 <= limit <= most:
        raise InvalidPage(f"a limit is 1 to {most}")
    return limit
