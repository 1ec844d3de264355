"""One attempt under way in this process, as its thread, the worker and its handles share it."""

import threading
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

from packhorse.jobs.job import Job, JobLost, Progress
from packhorse.jobs.names import InvalidProperties, require_properties

MOST_LINES = 200
"""Lines of a job's log that are kept, the newest."""

LONGEST_LINE = 2_000
"""Characters of a line or message; what is longer is cut."""


class Why(StrEnum):
    """Why an attempt should end soon."""

    ASKED = "somebody asked it to stop"
    LEAVING = "the process ends"
    TIME = "its time is over"
    LOST = "another attempt may have begun"


@dataclass(frozen=True, slots=True)
class Said:
    """What a consumer has said since it was last stored; `eta` counts from now."""

    progress: Progress | None = None
    eta: timedelta | None = None
    lines: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    """All properties, once one of them has changed; empty: none has."""

    @property
    def is_something(self) -> bool:
        """Whether there is anything to store."""
        return self.progress is not None or bool(self.lines) or bool(self.extra)


class Running:
    """An attempt; safe for threads.

    It is closed once, by whatever ends it first here; the database has the last word.
    """

    def __init__(self, job: Job, deadline: float | None = None) -> None:
        """Take the job as it was claimed, and the monotonic time at which its time is over."""
        self.job, self.deadline = job, deadline
        self.returned = False
        """Whether its thread is free again; the worker's own note."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._reasons: list[Why] = []
        self._closed = False
        self._progress, self._eta = job.progress, None
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._extra = dict(job.extra)
        self._told_progress = self._told_extra = False

    @property
    def stop_requested(self) -> bool:
        """Whether it should end soon."""
        return self._stop.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait, at most until it should end; tells whether it should."""
        return self._stop.wait(max(0.0, seconds))

    def ask_to_end(self, why: Why) -> bool:
        """Ask the consumer to end; false when it was asked for the same reason before."""
        with self._lock:
            if why in self._reasons:
                return False
            self._reasons.append(why)
        self._stop.set()
        return True

    def was_asked(self, why: Why) -> bool:
        """Tell whether it was asked to end for this reason."""
        with self._lock:
            return why in self._reasons

    def close(self) -> bool:
        """Let nothing that the consumer returns count from now on; true for who closed it."""
        with self._lock:
            was_open, self._closed = not self._closed, True
            return was_open

    @property
    def is_closed(self) -> bool:
        """Whether something has ended it."""
        with self._lock:
            return self._closed

    def require_open(self) -> None:
        """Raise `JobLost` when something has ended it."""
        if self.is_closed or self.was_asked(Why.LOST):
            raise JobLost(f"attempt {self.job.attempts} of job {self.job.number} has ended")

    def say_progress(self, progress: Progress, eta: timedelta | None) -> None:
        """Note how far it is; empty messages and missing steps stay as they were."""
        with self._lock:
            before = self._progress
            self._progress = replace(
                progress,
                steps=progress.steps or before.steps,
                message=(progress.message or before.message)[:LONGEST_LINE],
            )
            self._eta, self._told_progress = eta, True

    def say_line(self, line: str) -> None:
        """Note a line of the log."""
        with self._lock:
            self._lines.append(line.replace("\0", "�")[:LONGEST_LINE])

    def say_property(self, name: str, value: Any) -> None:
        """Note a property. Raises `InvalidProperties` when all of them are too large."""
        with self._lock:
            if not name:
                raise InvalidProperties("a property has a name")
            wanted = {**self._extra, name: value}
            self._extra = dict(require_properties(wanted))
            self._told_extra = True

    def take_said(self) -> Said:
        """Return what is to be stored, which is then taken as stored; see `give_back`."""
        with self._lock:
            said = Said(
                self._progress if self._told_progress else None,
                self._eta if self._told_progress else None,
                tuple(self._lines),
                dict(self._extra) if self._told_extra else {},
            )
            self._lines.clear()
            self._told_progress = self._told_extra = False
            return said

    def give_back(self, said: Said) -> None:
        """Take back what could not be stored; what was said meanwhile is newer."""
        with self._lock:
            self._lines = deque((*said.lines, *self._lines), maxlen=MOST_LINES)
            self._told_progress |= said.progress is not None
            self._told_extra |= bool(said.extra)
