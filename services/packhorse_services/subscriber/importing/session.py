"""What a subscription does between two reads of its position: import, clear, skip, give up.

Nothing here recovers from a lost connection or a moved position: the session ends (R26).
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from psycopg import Connection

from packhorse.runtime.metrics import SUBSCRIBER_IMPORT_ERRORS
from packhorse.runtime.tracing import continued
from packhorse.wire.messages import AWAITED, DesiredState, Status, SubscriptionState
from packhorse_services.subscriber.announce.statuses import Decision, left_out
from packhorse_services.subscriber.importing import log_lines
from packhorse_services.subscriber.importing.context import SessionContext
from packhorse_services.subscriber.importing.importer import Import
from packhorse_services.subscriber.importing.measures import (
    count_imported,
    count_removed,
    measure_arrival,
    timed_import,
)
from packhorse_services.subscriber.journal.arrivals import Arrival
from packhorse_services.subscriber.journal.failures import Fenced, SessionLost
from packhorse_services.subscriber.journal.grouping import Group, after_removal, next_group, single
from packhorse_services.subscriber.journal.position import Position
from packhorse_services.subscriber.journal.prefetch import DECODING, Prefetch
from packhorse_services.subscriber.journal.selection import Selection
from packhorse_services.subscriber.journal.sequences import HighWater
from packhorse_services.subscriber.staging.staging import StagingVerdict

_IDLE_S, _REST_S = 1.0, 5.0  # the latter where there is nothing to do; news ends both
_BLOCKED_ATTEMPTS = 3


class Session:
    """One subscription, one connection, one position; `step` is called by one thread."""

    def __init__(
        self, connection: Connection, position: Position, prefetch: Prefetch, ctx: SessionContext
    ) -> None:
        self.position = position
        self._connection, self._prefetch, self._ctx = connection, prefetch, ctx
        self._high_water = HighWater.load(connection, position.agent)
        self._waiting: deque[Arrival] = deque()
        self._passed = position.mark
        self._stored_at = ctx.clock.monotonic()
        ctx.attempts.resume(connection, position.mark, position.epoch)

    def step(self) -> float:
        """Do what can be done now, and return how many seconds there may be nothing to do.

        Raises `Fenced`, `SessionLost`, psycopg's errors, what the reader raises; it is over then.
        """
        before = self._ctx.report.state.state
        wait = self._step()
        now = self._ctx.report.state.state
        if now is not before and SubscriptionState.PAUSED in (now, before):
            self._ctx.on_progress()
        return wait

    def _step(self) -> float:
        self._fill()
        self._pass_others()
        self._end_clears()
        if not self._waiting:
            self._store_passed()
            idle = self._shown(SubscriptionState.IDLE)
            self._ctx.report.healthy(idle, head_time_ms=0)
            return _REST_S if self._passed == self.position.mark else _IDLE_S
        head = self._waiting[0]
        if self._covering(head):
            self._remove_front(self._cleared)
            return 0.0
        if self._paused():
            self._report(head, 0.0)
            return _IDLE_S
        ruling = self._ctx.gate.ruling(self.position, head)
        if ruling.verdict is StagingVerdict.WAIT:
            self._report_waiting(head, ruling.reason)
            return _IDLE_S
        if ruling.verdict is StagingVerdict.SKIP:
            self._remove_front(self._skipped)
            return 0.0
        wait = self._ctx.wait_s(head.mark, self.position.agent)
        self._report(head, wait)
        if wait == 0:
            self._try(head)
        return wait

    def _fill(self) -> None:
        limits = self._ctx.limits
        room = limits.packages - len(self._waiting)
        size = limits.bytes - sum(arrival.memory for arrival in self._waiting)
        arrived = self._prefetch.take(room, size)
        self._waiting += arrived
        measure_arrival(arrived, self._ctx.clock.wall_ms())

    def _pass_others(self) -> None:
        while self._waiting and self._waiting[0].record is None:
            self._passed = self._waiting.popleft().mark

    def _paused(self) -> bool:
        return self._ctx.control.desired(self.position.agent) is not DesiredState.RUN

    def _shown(self, state: SubscriptionState) -> SubscriptionState:
        return SubscriptionState.PAUSED if self._paused() else state

    def _end_clears(self) -> None:
        """Report clear commands that have nothing more to remove, though no package passes."""
        position = self.position
        passed = self._waiting[0].offset - 1 if self._waiting else self._passed.offset
        if self._ctx.clears.reached(position.agent, position.journal_id, passed):
            self._commit(Import(self._passed, self._high_water.fork(), cleared_up_to=passed))

    def _store_passed(self) -> None:
        late = self._ctx.clock.monotonic() - self._stored_at >= self._ctx.limits.passed_s
        if late and self._passed != self.position.mark:
            self._commit(Import(self._passed, self._high_water.fork()))

    def _try(self, head: Arrival) -> None:
        if self._ctx.attempts.exhausted(head.mark):
            self._give_up(head)
        elif self._ctx.attempts.alone(head.mark):
            self._try_alone(head)
        elif group := next_group(self._waiting, *self._taking(), self._accepts):
            self._try_group(group)
        else:
            self._try_alone(head)

    def _taking(self) -> tuple[str, HighWater, Selection]:
        return self.position.agent, self._high_water, self._ctx.importer.selection

    def _try_alone(self, head: Arrival) -> None:
        trace = continued(head.record.headers if head.record else {})
        with DECODING.paused(), trace:
            attempt = self._ctx.attempts.begin_alone(self._connection, head.mark)
            try:
                self._import(single(head, *self._taking()), attempt.attempts)
            except Fenced:
                raise
            except Exception as error:
                self._failed(head, error, counted=True)

    def _try_group(self, group: Group) -> None:
        self._ctx.attempts.begin_group(self._connection, group.first, group.last)
        try:
            self._import(group, 1)
        except Fenced:
            raise
        except Exception as error:
            if len(group.arrivals) == 1:
                self._failed(group.arrivals[0], error, counted=False)
                return
            log_lines.group_failed(self.position.agent, group, error)
            self._ctx.attempts.group_failed(group.last)
            self._end_if_lost(error)

    def _import(self, group: Group, attempts: int) -> None:
        memory, own = self._ctx.importer.memory, (self._connection, self.position.agent)
        known = self._ctx.attempts.head(group.first)
        group = memory.first_times(*own, group)
        self._ctx.imported.add(memory.imported(*own, [one.package_id for one in group.repeats]))
        fresh = group.fresh if self._ctx.editable else ()
        decisions = [Decision(mark, Status.IMPORTED, attempts) for mark, _ in fresh]
        decisions += self._ctx.imported.duplicates(self._connection, self.position, group)
        decisions += [left_out(*one) for one in group.left_out]
        with timed_import(self.position.agent):
            self._commit(Import(group.last, group.high_water, group.packages, decisions))
        count_imported(group, self._ctx.clock.wall_ms())
        log_lines.imported(self.position.agent, known, self._ctx.clock.wall_ms())
        self._ctx.imported.add(mark.package_id for mark, _ in group.fresh)

    def _failed(self, head: Arrival, error: Exception, *, counted: bool) -> None:
        attempts = self._ctx.attempts
        own = attempts.failed(head.mark, error, counted=counted)
        SUBSCRIBER_IMPORT_ERRORS.labels("permanent" if own else "transient").inc()
        log_lines.failed(self.position.agent, attempts.head(head.mark), error, counts=own)
        self._end_if_lost(error)
        attempts.save(self._connection)
        self._report(head, attempts.wait_s(head.mark))
        self._ctx.on_progress()
        if own and attempts.exhausted(head.mark):
            self._give_up(head)

    def _end_if_lost(self, error: Exception) -> None:
        if self._connection.closed:
            raise SessionLost(f"the connection was lost in an import: {error}") from error

    def _give_up(self, head: Arrival) -> None:
        known = self._ctx.attempts.head(head.mark)
        decision = Decision(head.mark, Status.REMOVED_FAILED, known.attempts, known.last_error)
        self._remove([head], [decision])

    def _remove_front(self, decide: Callable[[Arrival], Decision | None]) -> None:
        """Remove packages from the front for as long as `decide` has a decision."""
        removed: list[Arrival] = []
        decisions: list[Decision] = []
        for arrival in self._waiting:
            if arrival.record is None:
                continue
            if (decision := decide(arrival)) is None:
                break
            removed.append(arrival)
            decisions.append(decision)
        if removed:
            self._remove(removed, decisions)

    def _cleared(self, arrival: Arrival) -> Decision | None:
        if (command_id := self._covering(arrival)) is None:
            return None
        tried = arrival is self._waiting[0]
        attempts = self._ctx.attempts.head(arrival.mark).attempts if tried else 0
        return Decision(arrival.mark, Status.REMOVED, attempts, command_id=command_id)

    def _skipped(self, arrival: Arrival) -> Decision | None:
        ruling = self._ctx.gate.ruling(self.position, arrival)
        if ruling.verdict is not StagingVerdict.SKIP:
            return None
        return Decision(arrival.mark, Status.SKIPPED, reason=ruling.reason)

    def _accepts(self, arrival: Arrival) -> bool:
        return self._ctx.gate.ruling(self.position, arrival).verdict is StagingVerdict.ACCEPT

    def _remove(self, removed: Sequence[Arrival], decisions: Sequence[Decision]) -> None:
        status = decisions[0].status
        high_water = after_removal(self._high_water, removed, wanted=status is Status.REMOVED)
        self._commit(Import(removed[-1].mark, high_water, decisions=decisions))
        count_removed(status, len(removed))
        log_lines.removed(self.position.agent, decisions)

    def _commit(self, work: Import) -> None:
        """Do `work`, and take what it has dealt with from the front."""
        clears, own = self._ctx.clears, (self.position.agent, self.position.journal_id)
        up_to = work.mark.offset if work.cleared_up_to is None else work.cleared_up_to
        if ended := clears.reached(*own, up_to):
            work = replace(work, cleared_up_to=up_to)
        self.position = self._ctx.importer.commit(self._connection, self.position, work)
        self._high_water = work.high_water
        self._passed = work.mark
        self._stored_at = self._ctx.clock.monotonic()
        while self._waiting and self._waiting[0].offset <= work.mark.offset:
            self._waiting.popleft()
        self._ctx.attempts.passed()
        self._prefetch.decode()
        clears.forget(*own, ended)
        state = SubscriptionState.RUNNING if self._waiting else SubscriptionState.IDLE
        self._ctx.report.healthy(self._shown(state), mark=work.mark)
        self._ctx.on_progress(awaited=any(AWAITED in one.metadata for one in work.packages))

    def _covering(self, arrival: Arrival) -> str | None:
        """Return the id of the clear command that removes a package, or None."""
        position = self.position
        found = self._ctx.clears.covering(position.agent, position.journal_id, arrival.offset)
        return None if found is None else found.command_id

    def _report_waiting(self, head: Arrival, reason: str) -> None:
        before = self._ctx.report.state
        self._report(head, 0.0, state=SubscriptionState.WAITING_FOR_SUBSCRIBER, last_error=reason)
        if (before.state, before.last_error) != (SubscriptionState.WAITING_FOR_SUBSCRIBER, reason):
            self._ctx.on_progress()

    def _report(
        self,
        head: Arrival,
        wait_s: float,
        *,
        state: SubscriptionState | None = None,
        last_error: str | None = None,
    ) -> None:
        known = self._ctx.attempts.head(head.mark)
        blocked = known.attempts >= _BLOCKED_ATTEMPTS
        self._ctx.report.update(
            state=state
            or self._shown(SubscriptionState.BLOCKED if blocked else SubscriptionState.RUNNING),
            retries=known.attempts,
            last_error=known.last_error if last_error is None else last_error,
            blocked_since_ms=known.blocked_since_ms,
            next_attempt_ms=int(self._ctx.clock.wall_ms() + wait_s * 1000) if wait_s else 0,
            head_time_ms=head.record.time_ms if head.record else 0,
        )
