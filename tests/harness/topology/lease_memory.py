"""The lease store in memory: what the database does, by a clock that the test moves."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from packhorse.clock import Clock, SystemClock
from packhorse.topology.lease.store import (
    ClusterState,
    Incarnation,
    InstanceEntry,
    InstanceState,
    JoinOutcome,
    Pulse,
    Renewal,
)
from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.properties import LEADER_PREFIX

_DEACTIVATING = InstanceState.DEACTIVATING
_REMEMBERED_S = 7 * 24 * 3600.0
_T = TypeVar("_T")


@dataclass
class Row:
    """An instance in the database."""

    who: Incarnation
    number: int
    joined: int
    state: InstanceState
    lease_end: float
    lease_s: float
    acknowledged: int
    properties: dict[str, str]
    entered: int
    edition: int = 0
    changed_at: float = 0.0


@dataclass
class LeaseMemory:
    """The database. `now` is its clock; `history` has the active ids of every `seq`."""

    now: Callable[[], float]
    cluster_id: str = "cluster"
    completes: Callable[[Incarnation], bool] = lambda _who: True
    """Whether the backlog of an instance can be dealt with now."""
    seq: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    history: dict[int, tuple[str, ...]] = field(default_factory=dict)
    sessions: list["LeaseMemorySession"] = field(default_factory=list)
    _numbers: int = 0

    def session(self, clock: Clock | None = None) -> "LeaseMemorySession":
        """Return the store as one process sees it; its `wait` waits on `clock`."""
        session = LeaseMemorySession(self, clock or SystemClock())
        self.sessions.append(session)
        return session

    @property
    def active(self) -> list[Row]:
        """The active instances in their order."""
        rows = (row for row in self.rows.values() if row.state is InstanceState.ACTIVE)
        return sorted(rows, key=lambda row: row.joined)

    def own(self, who: Incarnation) -> Row | None:
        """Return the row of this incarnation while it is active."""
        row = self.rows.get(who.instance_id)
        return row if row and row.who == who and row.state is InstanceState.ACTIVE else None

    def renew(self, renewal: Renewal) -> Pulse | None:
        row = self.own(renewal.who)
        if row is None:
            return None
        row.lease_end, row.lease_s = self.now() + renewal.lease_s, renewal.lease_s
        row.acknowledged = max(row.acknowledged, renewal.acknowledged)
        if renewal.properties is not None:
            row.properties, row.edition = dict(renewal.properties), row.edition + 1
        if renewal.properties is not None or (renewal.announce and self._acknowledged_by_all()):
            self._hint(renewal.who)
        return Pulse(
            self.seq,
            self._editions(),
            self.now(),
            self._acknowledged_by_all(),
            any(self._overdue(row, renewal.who) for row in self.rows.values()),
        )

    def join(self, renewal: Renewal) -> JoinOutcome:
        who, former = renewal.who, self.rows.get(renewal.who.instance_id)
        retired = False
        if former and former.state is InstanceState.ACTIVE:
            if former.who == who:
                self.renew(renewal)
                return JoinOutcome.JOINED
            former.lease_end = min(former.lease_end, self.now() + former.lease_s)
            if former.lease_end > self.now():
                return JoinOutcome.TAKEN
            self._move([former], InstanceState.DEACTIVATING)
            retired = True
        if former and former.state is InstanceState.DEACTIVATING:
            self._complete_deactivation([former])
            self._elect([former] if retired else [])
        if former and former.state is InstanceState.DEACTIVATING:
            if retired:
                self.seq += 1
                self._changed(who)
            return JoinOutcome.UNSETTLED
        self._forget()
        number = former.number if former else self._next_number()
        self.seq += 1
        self.rows[who.instance_id] = Row(
            who,
            number,
            self.seq,
            InstanceState.ACTIVE,
            self.now() + renewal.lease_s,
            renewal.lease_s,
            0,
            dict(renewal.properties or {}),
            entered=self.seq,
        )
        self._changed(who)
        return JoinOutcome.JOINED

    def look(self) -> ClusterState | None:
        if not self.seq:
            return None
        rows = sorted(self.rows.values(), key=lambda row: row.joined)
        return ClusterState(
            self.cluster_id,
            self.seq,
            self._editions(),
            self._acknowledged_by_all(),
            tuple(
                InstanceEntry(row.who, row.number, row.joined, row.state, dict(row.properties))
                for row in rows
                if row.state is not InstanceState.INACTIVE
            ),
            tuple(sorted(row.number for row in rows if row.state is InstanceState.INACTIVE)),
        )

    def retire(self, judge: Incarnation) -> None:
        own = self.own(judge)
        if own is None or own.lease_end <= self.now() + own.lease_s / 2:
            return
        for row in self.active:
            row.lease_end = min(row.lease_end, self.now() + row.lease_s)
        expired = [row for row in self.active if row.lease_end <= self.now()]
        self._move(expired, InstanceState.DEACTIVATING)
        left = [row for row in self.rows.values() if row.state is InstanceState.DEACTIVATING]
        settled = self._complete_deactivation(left)
        self._elect(expired)
        if settled or expired:
            self.seq += 1
            self._forget()
            self._changed(judge)

    def leave(self, who: Incarnation) -> None:
        row = self.own(who)
        if row is not None:
            self._move([row], InstanceState.DEACTIVATING)
            self._complete_deactivation([row])
            self._elect([row])
            self.seq += 1
            self._changed(who)

    def _elect(self, gone: list[Row]) -> None:
        """Let one with a lower prefix than the next come first if the leader is gone."""
        active = self.active
        living = [row for row in active if row.lease_end > self.now()]
        if not (gone and living) or min(row.joined for row in gone) > active[0].joined:
            return
        chosen = min(living, key=lambda row: (_prefix(row), row.joined))
        if _prefix(chosen) >= _prefix(active[0]):
            return
        leaving = [one.joined for one in self.rows.values() if one.state is _DEACTIVATING]
        if any(active[0].joined <= joined <= chosen.joined for joined in leaving):
            return
        places = [row.joined for row in active]
        order = [chosen, *(row for row in active if row is not chosen)]
        for row, place in zip(order, places, strict=True):
            row.joined = place

    def _overdue(self, row: Row, asking: Incarnation) -> bool:
        if row.state is InstanceState.DEACTIVATING:
            return True
        over = row.lease_end <= self.now() or row.lease_end > self.now() + row.lease_s
        return row.state is InstanceState.ACTIVE and row.who != asking and over

    def _acknowledged_by_all(self) -> bool:
        return all(row.acknowledged >= self.seq for row in self.active)

    def _editions(self) -> int:
        return sum(row.edition for row in self.active)

    def _move(self, rows: list[Row], state: InstanceState) -> None:
        for row in rows:
            row.state, row.changed_at = state, self.now()

    def _complete_deactivation(self, rows: list[Row]) -> bool:
        settled = [row for row in rows if self.completes(row.who)]
        self._move(settled, InstanceState.INACTIVE)
        return bool(settled)

    def _forget(self) -> None:
        for row in list(self.rows.values()):
            if row.state is InstanceState.INACTIVE and row.changed_at < self.now() - _REMEMBERED_S:
                del self.rows[row.who.instance_id]

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _changed(self, by: Incarnation) -> None:
        self.history[self.seq] = tuple(row.who.instance_id for row in self.active)
        self._hint(by)

    def _hint(self, by: Incarnation) -> None:
        for session in self.sessions:
            if session.who != by:
                session.wake()


class LeaseMemorySession:
    """`LeaseStore` of one process; a test cuts it off, loses its answers, or steps in between."""

    def __init__(self, database: LeaseMemory, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._hints = threading.Event()
        self.who: Incarnation | None = None
        self.away = False
        """Nothing gets through."""
        self.answers_lost = False
        """What is asked for happens, and the answer does not come back."""
        self.before: Callable[[str], None] = lambda _step: None
        """Called before each step with its name: what happens meanwhile, also after a pause."""
        self.number = 0
        """Another one is another connection."""

    @property
    def hinted(self) -> bool:
        """A wait would return at once."""
        return self._hints.is_set()

    def renew(self, renewal: Renewal) -> Pulse | None:
        self.who = renewal.who
        pulse = self._step("renew", lambda: self._database.renew(renewal))
        return None if pulse is None else replace(pulse, session=self.number)

    def join(self, renewal: Renewal) -> JoinOutcome:
        self.who = renewal.who
        return self._step("join", lambda: self._database.join(renewal))

    def look(self) -> ClusterState | None:
        return self._step("look", self._database.look)

    def retire(self, judge: Incarnation) -> None:
        self._step("retire", lambda: self._database.retire(judge))

    def leave(self, who: Incarnation) -> None:
        self._step("leave", lambda: self._database.leave(who))

    def wait(self, seconds: float) -> bool:
        hinted = self._clock.wait(self._hints, seconds)
        self._hints.clear()
        return hinted

    def wake(self) -> None:
        self._hints.set()

    def close(self) -> None:
        if self in self._database.sessions:
            self._database.sessions.remove(self)

    def _step(self, name: str, act: Callable[[], _T]) -> _T:
        self.before(name)
        if self.away:
            raise StoreUnavailable("the test has cut the store off")
        done = act()
        if self.answers_lost:
            raise StoreUnavailable("the test has lost the answer")
        return done


def _prefix(row: Row) -> str:
    return row.properties.get(LEADER_PREFIX, "1")
