"""Clusters that a test drives step by step, on any store; time passes when the test says so."""

from collections.abc import Mapping
from typing import Any, Protocol

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from packhorse.topology.lease.member import LeaseMember
from packhorse.topology.lease.sql import SqlLeaseStore
from packhorse.topology.membership import Membership, Observation
from tests.harness.clock import ManualClock
from tests.harness.postgres import Databases, end_sessions
from tests.harness.topology.lease_memory import LeaseMemory


class Cluster(Protocol):
    """Where the members of one test meet."""

    timeout_s: float
    """Whoever is silent for longer is dead."""
    clock: ManualClock

    def member(self, instance_id: str) -> Membership:
        """Start a process."""
        ...

    def kill(self, member: Membership) -> None:
        """End a process without a word."""
        ...

    def pass_time(self, seconds: float) -> None:
        """Move all clocks."""
        ...

    def cut(self) -> None:
        """Take the store away from all."""
        ...

    def heal(self) -> None:
        """Give it back."""
        ...

    def close(self) -> None: ...


class LeaseMemoryCluster:
    timeout_s = 10.0

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.database = LeaseMemory(self.clock.monotonic)

    def member(self, instance_id: str) -> LeaseMember:
        return LeaseMember(self.database.session(self.clock), instance_id, clock=self.clock)

    def kill(self, member: Membership) -> None:
        """Nobody drives it any more."""

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def cut(self) -> None:
        for session in self.database.sessions:
            session.away = True

    def heal(self) -> None:
        for session in self.database.sessions:
            session.away = False

    def close(self) -> None:
        """There is nothing to give back."""


class LeaseSqlCluster:
    """A database of its own. To pass time, what the database remembers is made older.

    The database's own time passes too; a lease outlasts the test.
    """

    timeout_s = 600.0

    def __init__(self, databases: Databases) -> None:
        self.clock = ManualClock()
        self.url = databases.new("topology")
        self._admin = psycopg.connect(databases.server.url(), autocommit=True)
        self._running: dict[int, SqlLeaseStore] = {}
        self._passed_while_cut: float | None = None

    def member(self, instance_id: str) -> LeaseMember:
        store = SqlLeaseStore(self.url, patience_s=20.0)  # of a busy machine; time is not real here
        member = LeaseMember(store, instance_id, lease_s=self.timeout_s, clock=self.clock)
        self._running[id(member)] = store
        return member

    def kill(self, member: Membership) -> None:
        self._running.pop(id(member)).close()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        if self._passed_while_cut is not None:
            self._passed_while_cut += seconds
        else:
            self._age(seconds)

    def _age(self, seconds: float) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(
                "UPDATE topology.instance SET lease_end = lease_end - make_interval(secs => %s), "
                "changed_at = changed_at - make_interval(secs => %s)",
                (seconds, seconds),
            )

    def cut(self) -> None:
        self._allow("false")
        self._passed_while_cut = 0.0
        end_sessions(self._admin, database=make_url(self.url).database)

    def heal(self) -> None:
        self._allow("true")
        passed, self._passed_while_cut = self._passed_while_cut or 0.0, None
        self._age(passed)

    def close(self) -> None:
        for store in self._running.values():
            store.close()
        self._admin.close()

    def _allow(self, value: str) -> None:
        name = sql.Identifier(make_url(self.url).database or "")
        self._admin.execute(
            sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(name, sql.SQL(value))
        )


def step(member: Membership, properties: Mapping[str, str] | None = None) -> Observation:
    """Let a member beat once, and acknowledge what it sees as an instance without listeners."""
    seen = member.beat(properties or {})
    if seen.view is not None:
        member.acknowledge(seen.revision)
    return seen


def settled(cluster: Cluster, *members: Membership) -> Observation:
    """Drive these members, the only live ones, until they agree on a view; within four time-outs.

    Returns what the last of them has seen.
    """
    wanted = {member.instance_id for member in members}
    seen: list[Observation] = []
    for _ in range(40):
        seen = [step(member) for member in members]
        if _agree(seen, wanted):
            return seen[-1]
        cluster.pass_time(cluster.timeout_s / 10)
    raise AssertionError(f"{sorted(wanted)} don't agree: {seen}")


def joined(cluster: Cluster, *names: str) -> list[Any]:
    """Start one after the other, each when the former ones have settled; returns the members."""
    members: list[Membership] = []
    for name in names:
        members.append(cluster.member(name))
        settled(cluster, *members)
    return members


def _agree(seen: list[Observation], wanted: set[str]) -> bool:
    views = [one.view.ids for one in seen if one.view is not None and one.settled]
    revisions = {one.revision for one in seen}
    complete = len(views) == len(seen) and len(revisions) == 1
    assert not complete or len(set(views)) == 1, f"one revision, different views: {seen}"
    return complete and set(views[0]) == wanted


def ids(seen: Observation) -> tuple[str, ...]:
    """Return the instances of the view in their order; none without a view."""
    return () if seen.view is None else seen.view.ids
