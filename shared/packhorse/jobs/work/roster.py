"""The attempts under way in one process, and what is to be written of them; no I/O.

Used by the worker's thread alone. An attempt keeps its place until its end is stored and its
thread has returned, whichever comes last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Event

from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.store.claims import Claim
from packhorse.jobs.store.leases import Holding
from packhorse.jobs.work.running import Running, Why
from packhorse.jobs.work.slots import Slots


class Reply:
    """Tells whoever has handed an attempt's end in what came of it."""

    def __init__(self) -> None:
        self._answered = Event()
        self._stored = False

    def give(self, *, stored: bool) -> None:
        """Answer; the first one counts."""
        if not self._answered.is_set():
            self._stored = stored
            self._answered.set()

    def wait(self) -> bool:
        """Wait for the answer: whether the end is stored."""
        self._answered.wait()
        return self._stored


@dataclass(frozen=True, slots=True)
class End:
    """An end that is to be stored."""

    running: Running
    result: Result
    gives_back: bool = False
    """The attempt was stopped because the process ends, and is not counted."""
    reply: Reply | None = None


class Roster:
    """Who works on what."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._under_way: dict[Claim, Running] = {}
        self._returned: set[Running] = set()
        self._ends: dict[Running, End] = {}

    def begin(self, running: Running) -> None:
        """Give a new attempt a place."""
        self._under_way[running.claim] = running
        self.slots.take(running.job.queue)

    def returned(self, running: Running, result: Result) -> None:
        """Note what an attempt's thread has returned, which counts unless something ended it."""
        self._returned.add(running)
        if result.outcome is not Outcome.ASYNC and running.close():
            self._ends[running] = End(running, result, gives_back=_gives_back(running, result))
        self._tidy(running)

    def handed_in(self, end: End) -> None:
        """Note the end of an attempt that its handle has closed."""
        self._ends[end.running] = end

    def ends(self, limit: int) -> list[End]:
        """Return ends that are to be stored, the oldest first; they stay until `stored`."""
        return list(islice(self._ends.values(), limit))

    def put_last(self) -> None:
        """Let the oldest end wait for the others, because it may be what can't be stored."""
        if self._ends:
            running = next(iter(self._ends))
            self._ends[running] = self._ends.pop(running)

    def leaving(self) -> list[str]:
        """Return the queues whose places are free once all ends are stored, one for each place."""
        return [one.job.queue for one in self._ends if one in self._returned]

    def stored(self, end: End, *, lost: bool) -> None:
        """Note that an end is stored, or came too late."""
        del self._ends[end.running]
        if lost:
            end.running.ask_to_end(Why.LOST)
        if end.reply is not None:
            end.reply.give(stored=not lost)
        self._tidy(end.running)

    def overdue(self, now: float) -> list[Running]:
        """Return the attempts whose time is over; `now` is monotonic."""
        return [one for one in self.open() if one.deadline is not None and one.deadline <= now]

    def has_to_write(self, now: float) -> bool:
        """Tell whether there is an end to be stored, or a time that is over."""
        return bool(self._ends) or bool(self.overdue(now))

    def next_deadline(self) -> float | None:
        """Return when the next attempt's time is over."""
        return min((one.deadline for one in self.open() if one.deadline is not None), default=None)

    def over(self, running: Running, why: Why) -> None:
        """Note that the store has ended an attempt, or knows that it is lost."""
        running.close()
        running.ask_to_end(why)
        self._tidy(running)

    def heed(self, held: Sequence[Holding]) -> tuple[list[Running], list[Holding]]:
        """Compare with what the store says that this run has.

        Attempts that somebody wants to stop are asked to. Returns those that are lost, and what
        the store has under this run and nobody works on.
        """
        by_claim = {(one.number, one.epoch): one for one in held}
        lost = []
        for running in self.open():
            found = by_claim.get((running.claim.number, running.claim.epoch))
            if found is None and not running.completing:
                lost.append(running)
            elif found is not None and found.stop_requested:
                running.ask_to_end(Why.ASKED)
        known = {(claim.number, claim.epoch) for claim in self._under_way}
        return lost, [one for key, one in by_claim.items() if key not in known]

    def ask_all(self, why: Why) -> None:
        """Ask all attempts to end."""
        for running in self.open():
            running.ask_to_end(why)

    def open(self) -> list[Running]:
        """Return the attempts that nothing has ended."""
        return [one for one in self._under_way.values() if not one.is_closed]

    def abandon(self) -> None:
        """Let nothing count any more that attempts of this process still do."""
        for running in self.open():
            self.over(running, Why.LOST)
        for end in list(self._ends.values()):
            self.stored(end, lost=True)

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to wait for: every attempt has ended, and is stored."""
        return not self._ends and not self.open()

    def _tidy(self, running: Running) -> None:
        if running.is_closed and running in self._returned and running not in self._ends:
            self._returned.discard(running)
            if self._under_way.pop(running.claim, None) is not None:
                self.slots.give_back(running.job.queue)


def _gives_back(running: Running, result: Result) -> bool:
    """Tell whether a failure is only that the process ends."""
    wanted = running.was_asked(Why.ASKED) or running.was_asked(Why.TIME)
    return result.outcome is Outcome.FAILED and running.was_asked(Why.LEAVING) and not wanted
