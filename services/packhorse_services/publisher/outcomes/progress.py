"""How far the statuses are recorded: told by whoever records, waited for by whoever must know."""

import threading

from packhorse_services.publisher.outcomes.cursors import Cursor


class Progress:
    """The recorder's position in the status topic, as this process knows it. For any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._cursor: Cursor | None = None
        self._here = False
        self._version = 0

    @property
    def here(self) -> bool:
        """Whether it is this process that records."""
        return self._here

    @property
    def version(self) -> int:
        """Another number whenever the position has changed."""
        return self._version

    @property
    def offset(self) -> int:
        """Everything below it is recorded; -1 before that is known."""
        cursor = self._cursor
        return -1 if cursor is None else cursor.offset

    def tell(self, cursor: Cursor) -> None:
        """Note the position that this process has committed."""
        with self._changed:
            self._here = True
            self._note(cursor)

    def look(self, cursor: Cursor) -> None:
        """Note the position that was found in the database, unless this process is the one."""
        with self._changed:
            if not self._here:
                self._note(cursor)

    def leave(self) -> None:
        """Note that this process records no longer."""
        with self._changed:
            self._here = False

    def reached(self, end: int, timeout: float = 0.0) -> bool:
        """Tell whether all below `end` is recorded, within `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._cursor is not None and self._cursor.offset >= end, timeout
            )

    def _note(self, cursor: Cursor) -> None:
        if cursor != self._cursor:
            self._cursor = cursor
            self._version += 1
            self._changed.notify_all()
