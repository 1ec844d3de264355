"""Time as a parameter, so that tests decide what the hour is (R28)."""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What a loop may know of time."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never jumps, for back-off and intervals."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC, for display only: never decides a lease or an age."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set or `seconds` have passed; true when it was set."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds of `time.time`."""
        return time.time_ns() // 1_000_000

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait on the event itself."""
        return event.wait(seconds)
