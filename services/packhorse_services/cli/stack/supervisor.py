"""Keeps the programs of one stack running: started together, renewed when they die."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import httpx

from packhorse.errors import Permanent
from packhorse_services.cli.stack.child import ChildProcess

START_TIMEOUT_S = 300.0
"""A program that ends is noticed at once; a slow machine may need minutes for ten programs."""
STOP_TIMEOUT_S = 20.0
"""What has not ended then is killed, an import too."""
_AT_ONCE = 24
"""More that start at once would have no processor time left to sign in to their databases."""
_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
_HEALTHY_AFTER_S = 60.0
_POLL_S = 0.1


class StartFailed(Permanent):
    """A program of the stack ended, or was not ready in time; the text has its last words."""


class Restarts:
    """When a program that dies is run again: at once the first time, then later and later."""

    def __init__(self) -> None:
        self._delay = 0.0
        self.due: float | None = None

    def plan(self, now: float, ran_for: float) -> float:
        """Note a death after `ran_for` seconds of life, and return the seconds to wait."""
        if ran_for >= _HEALTHY_AFTER_S:
            self._delay = 0.0
        waits = self._delay
        self._delay = min(max(_FIRST_DELAY_S, 2 * self._delay), _LONGEST_DELAY_S)
        self.due = now + waits
        return waits


class Supervisor:
    """The children of one stack, in the order of their start."""

    def __init__(
        self,
        children: Sequence[ChildProcess],
        report: Callable[[str], None],
        *,
        at_once: int = _AT_ONCE,
    ) -> None:
        self.children = children
        self._report, self._at_once = report, at_once
        self._restarts = {child: Restarts() for child in children}
        self._is_renewed = False

    def start(self, cancelled: Callable[[], bool], timeout: float = START_TIMEOUT_S) -> None:
        """Start all, some at a time, and return when each is ready, or when `cancelled`.

        Raises `StartFailed`, also when none gets ready for `timeout` seconds.
        """
        coming, waiting, deadline = deque(self.children), list[ChildProcess](), 0.0
        with httpx.Client(timeout=2.0, trust_env=False) as client:
            while (coming or waiting) and not cancelled():
                late = [child for child in waiting if not _ready(client, child)]
                if len(late) < len(waiting) or not waiting:
                    deadline = time.monotonic() + timeout
                elif time.monotonic() > deadline:
                    raise StartFailed(_late(late[0]))
                waiting = [*late, *self._spawned(coming, self._at_once - len(late))]
                time.sleep(_POLL_S)

    @staticmethod
    def _spawned(coming: deque[ChildProcess], count: int) -> Iterator[ChildProcess]:
        for _ in range(min(count, len(coming))):
            child = coming.popleft()
            child.spawn()
            yield child

    def tend(self) -> bool:
        """Run again what has died and is due; true when a process is new. Call it often.

        Raises `OSError` where one can't be started now; what is new by then is told the next time.
        """
        now = time.monotonic()
        for child, restarts in self._restarts.items():
            if restarts.due is not None:
                if now >= restarts.due:
                    child.spawn()
                    restarts.due = None  # not before: one that can't be started is tried again
                    self._is_renewed = True
            elif (code := child.ended()) is not None:
                waits = restarts.plan(now, now - child.started_at)
                self._report(f"{child.program.name} {_ending(code)}; again in {waits:.1f} s")
        renewed, self._is_renewed = self._is_renewed, False
        return renewed

    def is_renewing(self) -> bool:
        """Return whether a program has died and is not running again yet."""
        return any(one.due is not None for one in self._restarts.values())

    def stop(self) -> None:
        """Ask all to end, the last one started first; what does not end in time is killed."""
        for child in reversed(self.children):
            child.request_stop()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for child in reversed(self.children):
            child.end_by(deadline)

    def pids(self) -> dict[str, int]:
        """Return the process id of each program."""
        return {child.program.name: child.pid for child in self.children}


def _ready(client: httpx.Client, child: ChildProcess) -> bool:
    if (code := child.ended()) is not None:
        raise StartFailed(f"{child.program.name} {_ending(code)}:\n{child.last_lines()}")
    try:
        return client.get(f"{child.program.url}/readyz").is_success
    except httpx.TransportError:
        return False


def _late(child: ChildProcess) -> str:
    return (
        f"{child.program.name} was not ready in time; its log {child.log} ends with\n"
        f"{child.last_lines()}"
    )


def _ending(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
