"""Clear commands that are in force: which packages of which agent are to be removed (R19)."""

import threading
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class PendingClear:
    """Remove what is still to import of an agent, up to an offset and never above."""

    up_to: int
    command_id: str


class ClearCommands:
    """Commands by agent and journal, for its offsets mean nothing in another one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], list[PendingClear]] = {}
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every `take`."""
        self._listeners.append(listener)

    def take(self, clears: Iterable[tuple[str, str, PendingClear]]) -> None:
        """Put exactly these in force: agent, journal and command of each."""
        known: dict[tuple[str, str], list[PendingClear]] = defaultdict(list)
        for agent, journal_id, pending in clears:
            insort(known[agent, journal_id], pending)
        with self._lock:
            self._known = known
        for listener in self._listeners:
            listener()

    def reached(self, agent: str, journal_id: str, offset: int) -> list[PendingClear]:
        """Return the commands in force that end at or below `offset`."""
        with self._lock:
            known = self._known.get((agent, journal_id), [])
            return known[: bisect_left(known, PendingClear(offset + 1, ""))]

    def covering(self, agent: str, journal_id: str, offset: int) -> PendingClear | None:
        """Return the nearest command that removes `offset`, or None."""
        with self._lock:
            known = self._known.get((agent, journal_id), [])
            index = bisect_left(known, PendingClear(offset, ""))
            return known[index] if index < len(known) else None

    def forget(self, agent: str, journal_id: str, ended: Collection[PendingClear]) -> None:
        """Drop these commands; one that came meanwhile stays, wherever it ends."""
        with self._lock:
            known = self._known.get((agent, journal_id), [])
            known[:] = [one for one in known if one not in ended]
