"""The attempts under way in one process, the capacity that they take, and their results.

`RunningJobs` is used by the worker's thread alone. An attempt keeps its place until its end is
stored and its function has returned.
"""

import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from threading import Event

from psycopg import Connection

from packhorse.db.transactions import Connect, within
from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.job import JobLost, JobState
from packhorse.jobs.store import claims, finishing, leases
from packhorse.jobs.store.claims import Claim
from packhorse.jobs.store.finishing import Ended
from packhorse.jobs.store.leases import HeldAttempt
from packhorse.jobs.store.notes import Notes, stored_text
from packhorse.jobs.work.attempt import RunningAttempt, StopReason


class Slots:
    """Places of one instance; used by one thread.

    An attempt that has ended keeps its place until its thread has returned.
    """

    def __init__(self, places: int, usual: int) -> None:
        """Take how many attempts may be under way at a time, and what -1 means for a queue."""
        self._places, self._usual = places, max(1, usual)
        self._taken: Counter[str] = Counter()

    def take(self, queue: str) -> None:
        """Take a place, also where none is free."""
        self._taken[queue] += 1

    def give_back(self, queue: str) -> None:
        """Let another one have it."""
        self._taken[queue] -= 1
        if not self._taken[queue]:
            del self._taken[queue]

    def without(self, queues: Iterable[str]) -> "Slots":
        """Return places as they will be once one of each of these queues is given back."""
        made = Slots(self._places, self._usual)
        made._taken = self._taken - Counter(queues)
        return made

    def taken(self) -> dict[str, int]:
        """Return how many places of each queue are taken."""
        return dict(self._taken)

    def free(self) -> int:
        """Return how many places are free, whatever the queue."""
        return max(0, self._places - self._taken.total())

    def free_of(self, queue: str, max_parallel: int) -> int:
        """Return how many jobs of a queue may be begun, as far as there are places at all."""
        most = self._usual if max_parallel < 0 else max_parallel
        return max(0, min(self.free(), most - self._taken[queue]))


class Reply:
    """Answers whoever has submitted an attempt's result."""

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

    running: RunningAttempt
    result: Result
    gives_back: bool = False
    """The attempt was stopped because the process ends, and is not counted."""
    reply: Reply | None = None


class RunningJobs:
    """The jobs that run here, and the ends that are not stored yet."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._under_way: dict[Claim, RunningAttempt] = {}
        self._returned: set[RunningAttempt] = set()
        self._ends: dict[RunningAttempt, End] = {}

    def begin(self, running: RunningAttempt) -> None:
        """Give a new attempt a place."""
        self._under_way[running.claim] = running
        self.slots.take(running.job.queue)

    def returned(self, running: RunningAttempt, result: Result) -> None:
        """Note what an attempt's thread has returned, which counts unless something ended it."""
        self._returned.add(running)
        if result.outcome is not Outcome.ASYNC and running.close():
            self._ends[running] = End(running, result, gives_back=_gives_back(running, result))
        self._tidy(running)

    def submitted(self, end: End) -> None:
        """Note the end of an attempt that its handle has closed."""
        self._ends[end.running] = end

    def ends(self, limit: int) -> list[End]:
        """Return ends that are to be stored, the oldest first; they stay until `stored`."""
        return list(islice(self._ends.values(), limit))

    def put_last(self, running: RunningAttempt | None = None) -> None:
        """Let an end that can't be stored now wait for the others: the oldest, or that of one."""
        if self._ends:
            last = next(iter(self._ends)) if running is None else running
            self._ends[last] = self._ends.pop(last)

    @property
    def unstored(self) -> int:
        """How many ends there are."""
        return len(self._ends)

    def leaving(self, stored: Collection[RunningAttempt] | None = None) -> list[str]:
        """Return the queues whose places are free once these ends are stored, one for each place.

        Without `stored` it is once all are.
        """
        ends = self._ends if stored is None else stored
        return [one.job.queue for one in ends if one in self._returned]

    def stored(self, end: End, *, lost: bool) -> None:
        """Note that an end is stored, or came too late."""
        del self._ends[end.running]
        if lost:
            end.running.request_stop(StopReason.LOST)
        if end.reply is not None:
            end.reply.give(stored=not lost)
        self._tidy(end.running)

    def overdue(self, now: float) -> list[RunningAttempt]:
        """Return the attempts whose time is over; `now` is monotonic."""
        return [one for one in self.open() if one.deadline is not None and one.deadline <= now]

    def has_to_write(self, now: float) -> bool:
        """Return whether there is an end to be stored, or a time that is over."""
        return bool(self._ends) or bool(self.overdue(now))

    def next_deadline(self) -> float | None:
        """Return when the next attempt's time is over."""
        return min((one.deadline for one in self.open() if one.deadline is not None), default=None)

    def over(self, running: RunningAttempt, why: StopReason) -> None:
        """Note that the store has ended an attempt, or knows that it is lost."""
        running.close()
        running.request_stop(why)
        self._tidy(running)

    def compare(
        self, held: Sequence[HeldAttempt]
    ) -> tuple[list[RunningAttempt], list[HeldAttempt]]:
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
                running.request_stop(StopReason.REQUESTED)
        known = {(claim.number, claim.epoch) for claim in self._under_way}
        return lost, [one for key, one in by_claim.items() if key not in known]

    def request_stop_of_all(self, why: StopReason) -> None:
        """Ask all attempts to end."""
        for running in self.open():
            running.request_stop(why)

    def open(self) -> list[RunningAttempt]:
        """Return the attempts that nothing has ended."""
        return [one for one in self._under_way.values() if not one.is_closed]

    def abandon(self) -> None:
        """Let nothing count any more that attempts of this process still do."""
        for running in self.open():
            self.over(running, StopReason.LOST)
        for end in list(self._ends.values()):
            self.stored(end, lost=True)

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to wait for: every attempt has ended, and is stored."""
        return not self._ends and not self.open()

    def _tidy(self, running: RunningAttempt) -> None:
        if running.is_closed and running in self._returned and running not in self._ends:
            self._returned.discard(running)
            if self._under_way.pop(running.claim, None) is not None:
                self.slots.give_back(running.job.queue)


def _gives_back(running: RunningAttempt, result: Result) -> bool:
    """Return whether a failure is only that the process ends."""
    wanted = running.stop_requested_for(StopReason.REQUESTED) or running.stop_requested_for(
        StopReason.TIME
    )
    return (
        result.outcome is Outcome.FAILED
        and running.stop_requested_for(StopReason.LEAVING)
        and not wanted
    )


class ResultQueue:
    """Results that threads have added and the worker's thread has not stored yet."""

    def __init__(self, connect: Connect, bell: threading.Event) -> None:
        self._connect, self._bell = connect, bell
        self._lock = threading.Lock()
        self._returned: deque[tuple[RunningAttempt, Result]] = deque()
        self._submitted: deque[End] = deque()
        self._open = True

    def connection(self) -> AbstractContextManager[Connection]:
        """Lend a connection."""
        return self._connect()

    def hold(self, connection: Connection, running: RunningAttempt) -> None:
        """Keep the attempt until the transaction ends. Raises `JobLost`."""
        with within(connection) as session:
            claims.check(session, running.claim)

    def succeed(self, connection: Connection, running: RunningAttempt, notes: Notes) -> JobState:
        """Finish the job; from now on the transaction is the bookkeeper's. Raises `JobLost`.

        Returns its state once that is committed. The transaction ends with the lease: where the
        process is paused now, nobody waits for the job's row.
        """
        leases.act_with(connection, running.claim.runtime_id)
        [ending] = finishing.finish(connection, [Ended(running.claim, Result(Outcome.OK), notes)])
        if ending.state is None:
            raise JobLost(f"attempt {running.job.attempts} of job {running.job.number} is over")
        return ending.state

    def report(self, running: RunningAttempt, result: Result) -> None:
        """Note what an attempt's thread has returned."""
        self._returned.append((running, result))
        self._bell.set()

    def submit_result(self, running: RunningAttempt, result: Result) -> None:
        """End an attempt, and return once that is stored. Raises `JobLost`."""
        reply = Reply()
        with self._lock:
            if not self._open or not running.close():
                raise JobLost(f"attempt {running.job.attempts} of job {running.job.number} is over")
            reported = replace(result, message=stored_text(result.message))
            self._submitted.append(End(running, reported, reply=reply))
        self._bell.set()
        if not reply.wait():
            raise JobLost(f"the end of job {running.job.number} was not stored in time")

    def take_into(self, running_jobs: RunningJobs) -> None:
        """Give `running_jobs` all that was submitted."""
        while self._submitted:
            running_jobs.submitted(self._submitted.popleft())
        while self._returned:
            running_jobs.returned(*self._returned.popleft())

    def close(self) -> None:
        """Take nothing more; who waits for a reply gets none."""
        with self._lock:
            self._open = False
            for end in self._submitted:
                if end.reply is not None:
                    end.reply.give(stored=False)
