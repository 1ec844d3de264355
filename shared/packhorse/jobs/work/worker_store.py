"""What a worker writes and reads in one transaction, and what follows once that has committed."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from psycopg import Connection

from packhorse.jobs.job import JobState
from packhorse.jobs.queue import Layout
from packhorse.jobs.store import claims, finishing, leases, queues
from packhorse.jobs.store.claims import Claim, Claimed, ClaimRequest
from packhorse.jobs.store.finishing import Ended, Ending
from packhorse.jobs.store.leases import WorkerRun
from packhorse.jobs.store.notes import Notes, note
from packhorse.jobs.work.attempt import RunningAttempt, StopReason
from packhorse.jobs.work.claiming import Leads
from packhorse.jobs.work.running_jobs import End, RunningJobs
from packhorse.runtime.metrics import JOBS_ENDED

logger = logging.getLogger(__name__)

_PATIENCE = "SET LOCAL lock_timeout = '2s'"
"""A transaction of a consumer that holds its own attempt must not hold up the others for long."""
_PROCESS_ENDS = "its process ended"
_NOT_BEGUN = "it was claimed, and not begun"


@dataclass(slots=True)
class WriteOutcome:
    """What one transaction has done; it counts once it has committed."""

    ends: list[tuple[End, Ending]] = field(default_factory=list)
    timed_out: list[tuple[RunningAttempt, Ending]] = field(default_factory=list)
    noted: list[tuple[RunningAttempt, Notes]] = field(default_factory=list)
    lost: list[RunningAttempt] = field(default_factory=list)
    claimed: list[Claimed] = field(default_factory=list)
    waiting: bool = False
    """There are jobs that it could not claim yet, or may be."""

    @property
    def stored(self) -> list[RunningAttempt]:
        """Those whose ends are stored: not where a transaction holds the attempt."""
        return [end.running for end, one in self.ends if one.state is not JobState.ACTIVE]

    @property
    def held_up(self) -> bool:
        """Whether an end could not be stored, because a transaction holds its attempt."""
        return len(self.stored) < len(self.ends)

    def undo(self) -> None:
        """Nothing was stored, as far as is known."""
        for running, notes in self.noted:
            running.give_back(notes)


class WorkerStore:
    """The store's side of a worker's run; its thread alone uses it."""

    def __init__(self, run: WorkerRun, running_jobs: RunningJobs) -> None:
        self._run, self._running_jobs = run, running_jobs

    def begin(self, connection: Connection) -> Connection:
        """Say whose transaction it is, and for how long it waits for another's."""
        leases.act_with(connection, self._run.runtime_id)
        connection.execute(_PATIENCE)
        return connection

    def look(self, connection: Connection, written: WriteOutcome) -> None:
        """See who asks for a stop, and what is lost; give back what nobody works on."""
        lost, strays = self._running_jobs.compare(leases.holdings(connection, self._run))
        written.lost += lost
        if strays:
            found = [Claim(one.number, self._run.runtime_id, one.epoch) for one in strays]
            finishing.release(connection, found, _NOT_BEGUN, begun=False)
            logger.info("jobs were given back that were not begun", extra={"jobs": len(found)})

    def store_ends(self, connection: Connection, written: WriteOutcome, limit: int) -> None:
        """Store what has ended, `limit` at most, but for what a transaction holds just now."""
        ends = self._running_jobs.ends(limit)
        ended = [end for end in ends if not end.gives_back]
        back = [end for end in ends if end.gives_back]
        if ended:
            reported = [Ended(end.running.claim, end.result, _notes(end, written)) for end in ended]
            stored = _known(connection, finishing.finish(connection, reported, wait=False))
            written.ends += zip(ended, stored, strict=True)
        if back:
            given = finishing.release(
                connection, [end.running.claim for end in back], _PROCESS_ENDS
            )
            written.ends += zip(back, given, strict=True)

    def time_out(self, connection: Connection, written: WriteOutcome, now: float) -> None:
        """End the attempts whose time is over; `now` is monotonic."""
        for running in self._running_jobs.overdue(now):
            ending = finishing.time_out(connection, running.claim, StopReason.TIME)
            written.timed_out.append((running, ending))

    def note(self, connection: Connection, written: WriteOutcome) -> None:
        """Store what consumers have said."""
        said = [(one, one.take_notes()) for one in self._running_jobs.open()]
        said = [(one, notes) for one, notes in said if notes.is_something]
        written.noted += said
        if said:
            lost = note(connection, [(one.claim, notes) for one, notes in said])
            written.lost += [one for one, _ in said if one.claim in lost and not one.completing]

    def read_layout(self, connection: Connection) -> Layout:
        """Read queues and topics."""
        return queues.read_layout(connection)

    def claim(
        self,
        connection: Connection,
        written: WriteOutcome,
        requests: Sequence[ClaimRequest],
        *,
        leads: Leads,
    ) -> None:
        """Claim jobs."""
        if requests:
            led = [topic for request in requests for topic in request.topics if leads(topic)]
            written.claimed = claims.claim(connection, self._run, requests, led=led)
            written.waiting = bool(written.claimed) or claims.are_waiting(connection, requests)

    def leave(self, connection: Connection) -> None:
        """Give back all that has not ended, and the lease."""
        back = [one.claim for one in self._running_jobs.open()]
        if back:
            finishing.release(connection, back, _PROCESS_ENDS)
        leases.leave(connection, self._run)

    def committed(self, written: WriteOutcome) -> None:
        """Let what was stored take effect here."""
        for end, ending in written.ends:
            if ending.state is JobState.ACTIVE:
                self._running_jobs.put_last(end.running)
                continue
            self._running_jobs.stored(end, lost=ending.state is None)
            _count(end.running, ending)
        for running, ending in written.timed_out:
            if ending.state is not JobState.ACTIVE:
                self._running_jobs.over(
                    running, StopReason.LOST if ending.state is None else StopReason.TIME
                )
                _count(running, ending)
        for running in written.lost:
            if not running.completing and not running.is_closed:
                logger.warning(
                    "an attempt at job %d was lost: this program's lease was over, or somebody "
                    "has abandoned it",
                    running.job.number,
                    extra={"job": running.job.number},
                )
                self._running_jobs.over(running, StopReason.LOST)
                JOBS_ENDED.labels(running.job.queue, "LOST").inc()


def _notes(end: End, written: WriteOutcome) -> Notes:
    notes = end.running.take_notes()
    if notes.is_something:
        written.noted.append((end.running, notes))
    return notes


def _known(connection: Connection, endings: Sequence[Ending]) -> list[Ending]:
    """Distinguish an end that is stored already from a lost attempt: a commit may go unanswered."""
    missing = [one.claim.number for one in endings if one.state is None]
    if not missing:
        return list(endings)
    rows = connection.execute(
        "SELECT number, epoch, state FROM jobs.finished "
        "WHERE number = ANY(%s) AND state <> 'DROPPED'",
        (missing,),
    )
    found = {(number, epoch): JobState(state) for number, epoch, state in rows}
    return [
        replace(one, state=one.state or found.get((one.claim.number, one.claim.epoch)))
        for one in endings
    ]


def _count(running: RunningAttempt, ending: Ending) -> None:
    state = "LOST" if ending.state is None else ending.state.value
    JOBS_ENDED.labels(running.job.queue, state).inc()
