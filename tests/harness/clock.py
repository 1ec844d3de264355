"""A clock that stands still until the test moves it."""

import threading


class ManualClock:
    """Time as a test sets it; waits return when it has moved far enough, or at the event."""

    def __init__(self, monotonic: float = 1000.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._moved = threading.Condition()
        self._monotonic, self._wall_ms = monotonic, wall_ms
        self._waiting = 0

    def monotonic(self) -> float:
        with self._moved:
            return self._monotonic

    def wall_ms(self) -> int:
        with self._moved:
            return self._wall_ms

    def wait(self, event: threading.Event, seconds: float) -> bool:
        with self._moved:
            until = self._monotonic + seconds
            self._waiting += 1
            self._moved.notify_all()
            try:
                # The event is set outside the condition, so it is looked at often.
                while not event.is_set() and self._monotonic < until:
                    self._moved.wait(0.005)
            finally:
                self._waiting -= 1
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Move both clocks."""
        with self._moved:
            self._monotonic += seconds
            self._wall_ms += int(seconds * 1000)
            self._moved.notify_all()

    def jump(self, wall_ms: int) -> None:
        """Set the wall clock only, as an operator may."""
        with self._moved:
            self._wall_ms = wall_ms

    def until_waited_on(self) -> None:
        """Return once a thread waits on this clock."""
        with self._moved:
            assert self._moved.wait_for(lambda: self._waiting, 120), "nobody waits"
