"""The lease store in Postgres."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg import Connection

from packhorse.db.engine import Timeouts
from packhorse.db.run_sessions import end_sessions
from packhorse.topology.lease import transitions
from packhorse.topology.lease.store import (
    ClusterState,
    Incarnation,
    InstanceEntry,
    InstanceState,
    JoinOutcome,
    Pulse,
    Renewal,
)
from packhorse.topology.patience import bookkeeper_connection
from packhorse.topology.store_session import CHANNEL, StoreSession

_TOGETHER_S, _APART_S = 0.2, 0.01
"""Changes that come one upon another, as when all instances start, are answered together: after
this long, or so long for each instance, so that all of them together ask 100 times a second."""

_RENEW = """
WITH own AS (
    UPDATE topology.instance SET
        lease_end = clock_timestamp() + make_interval(secs => %(lease_s)s),
        lease_s = %(lease_s)s,
        acknowledged = greatest(acknowledged, %(acknowledged)s),
        properties = coalesce(%(properties)s::jsonb, properties),
        edition = edition + CASE WHEN %(properties)s::jsonb IS NULL THEN 0 ELSE 1 END
    WHERE id = %(id)s AND runtime_id = %(runtime_id)s AND state = 'ACTIVE'
    RETURNING edition, acknowledged),
others AS (
    SELECT coalesce(sum(edition) FILTER (WHERE state = 'ACTIVE'), 0)::bigint AS editions,
        min(acknowledged) FILTER (WHERE state = 'ACTIVE') AS acknowledged,
        min(lease_end) AS first_end, max(lease_end) AS last_end, max(lease_s) AS lease_s,
        bool_or(state = 'DEACTIVATING') AS leaving
    FROM topology.instance WHERE state <> 'INACTIVE' AND id <> %(id)s)
SELECT c.seq, others.editions + own.edition, extract(epoch FROM clock_timestamp())::float8,
    least(others.acknowledged, own.acknowledged) >= c.seq,
    coalesce(others.leaving OR first_end <= clock_timestamp()
        OR last_end > clock_timestamp() + make_interval(secs => others.lease_s + 1), false)
FROM own, others, topology.cluster c
"""

_WAKE = "SELECT pg_notify(%s, '')"

_LOOK = """
SELECT c.id, c.seq,
    i.id, i.runtime_id, i.number, i.joined, i.state, i.properties, i.edition,
    i.acknowledged >= c.seq
FROM topology.cluster c LEFT JOIN topology.instance i ON true
ORDER BY i.joined
"""

_FORMER = """
UPDATE topology.instance
SET lease_end = least(lease_end, clock_timestamp() + make_interval(secs => lease_s))
WHERE id = %s RETURNING runtime_id, state, lease_end > clock_timestamp()
"""


class SqlLeaseStore:
    """`LeaseStore` over one connection.

    `patience_s`, less than half of a lease, bounds each wait for an answer.
    """

    def __init__(self, url: str, *, patience_s: float = 4.0) -> None:
        self._session = _session(url, patience_s)

    def renew(self, renewal: Renewal) -> Pulse | None:
        """See `LeaseStore.renew`; one statement while nothing changes."""
        if renewal.properties is not None:
            with self._transaction() as connection:
                pulse = self._renew(connection, renewal)
                connection.execute(_WAKE, (CHANNEL,))
            return pulse
        with self._session.use() as connection:
            pulse = self._renew(connection, renewal)
            if pulse is not None and pulse.acknowledged_by_all and renewal.announce:
                connection.execute(_WAKE, (CHANNEL,))
        return pulse

    def join(self, renewal: Renewal) -> JoinOutcome:
        """See `LeaseStore.join`."""
        with self._transaction() as connection:
            if self._renew(connection, renewal) is not None:
                return JoinOutcome.JOINED
            transitions.found_cluster(connection)
            refused = self._make_room(connection, renewal.who)
            if refused is not None:
                return refused
            transitions.forget(connection)
            transitions.next_seq(connection)
            transitions.enter(connection, renewal, _written(renewal.properties or {}))
            return JoinOutcome.JOINED

    def look(self) -> ClusterState | None:
        """See `LeaseStore.look`."""
        with self._session.use() as connection:
            rows = connection.execute(_LOOK).fetchall()
        state = _state(rows) if rows else None
        if state is not None:
            self._session.together_s = max(_TOGETHER_S, _APART_S * len(state.entries))
        return state

    def retire(self, judge: Incarnation) -> None:
        """See `LeaseStore.retire`; does nothing either while another one changes the membership."""
        with self._transaction() as connection:
            if not (transitions.try_lock_cluster(connection) and _is_fresh(connection, judge)):
                return
            transitions.cut_leases(connection)
            expired = transitions.retire_expired(connection, judge)
            settled = transitions.deactivate_all(connection)
            transitions.elect(connection, expired)
            if expired or settled:
                transitions.next_seq(connection)
                transitions.forget(connection)

    def leave(self, who: Incarnation) -> None:
        """See `LeaseStore.leave`."""
        with self._transaction() as connection:
            if not transitions.lock_cluster(connection):
                return
            if left := transitions.deactivate(connection, who):
                transitions.complete_deactivation(connection, who)
                transitions.elect(connection, left)
                transitions.next_seq(connection)

    def wait(self, seconds: float) -> bool:
        """See `LeaseStore.wait`."""
        return self._session.wait(seconds)

    def wake(self) -> None:
        """See `LeaseStore.wake`."""
        self._session.wake()

    def close(self) -> None:
        """See `LeaseStore.close`."""
        self._session.close()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Give a transaction that is on disk when it has ended."""
        with self._session.use() as connection, connection.transaction():
            connection.execute("SET LOCAL synchronous_commit = on")
            yield connection

    def _renew(self, connection: Connection, renewal: Renewal) -> Pulse | None:
        written = None if renewal.properties is None else _written(renewal.properties)
        parameters = {
            "id": renewal.who.instance_id,
            "runtime_id": renewal.who.runtime_id,
            "lease_s": renewal.lease_s,
            "acknowledged": renewal.acknowledged,
            "properties": written,
        }
        row = connection.execute(_RENEW, parameters).fetchone()
        if row is None:
            return None
        seq, editions, now_s, acknowledged_by_all, overdue = row
        session = self._session.number
        return Pulse(seq, editions, now_s, acknowledged_by_all, overdue, session)

    def _make_room(self, connection: Connection, who: Incarnation) -> JoinOutcome | None:
        """Retire an earlier incarnation that has ended; return why `who` can't join."""
        row = connection.execute(_FORMER, (who.instance_id,)).fetchone()
        if row is None or row[1] == InstanceState.INACTIVE.value:
            return None
        former = Incarnation(who.instance_id, row[0])
        if row[1] == InstanceState.ACTIVE.value and row[2]:
            return JoinOutcome.TAKEN
        retired = transitions.deactivate(connection, former)
        end_sessions(connection, [former.runtime_id])
        settled = transitions.complete_deactivation(connection, former)
        transitions.elect(connection, retired)
        if settled:
            return None
        if retired:
            transitions.next_seq(connection)
        return JoinOutcome.UNSETTLED


def _is_fresh(connection: Connection, judge: Incarnation) -> bool:
    """Return whether more than half of the judge's lease is left."""
    row = connection.execute(
        """
        SELECT FROM topology.instance WHERE id = %s AND runtime_id = %s AND state = 'ACTIVE'
        AND lease_end > clock_timestamp() + make_interval(secs => lease_s / 2)
        """,
        (judge.instance_id, judge.runtime_id),
    ).fetchone()
    return row is not None


def _written(properties: Mapping[str, str]) -> str:
    return json.dumps(dict(properties))


def _state(rows: Sequence[tuple[Any, ...]]) -> ClusterState:
    """Read the rows of `_LOOK`."""
    cluster_id, seq = rows[0][:2]
    editions, acknowledged_by_all = 0, True
    entries, inactive = list[InstanceEntry](), list[int]()
    for _, _, instance_id, *instance, edition, acknowledged in rows:
        if instance_id is None:  # the cluster has no instance
            continue
        entry = _entry(instance_id, *instance)
        if entry.state is InstanceState.INACTIVE:
            inactive.append(entry.number)
            continue
        entries.append(entry)
        if entry.state is InstanceState.ACTIVE:
            editions += edition
            acknowledged_by_all = acknowledged_by_all and acknowledged
    return ClusterState(
        cluster_id=cluster_id,
        seq=seq,
        editions=editions,
        acknowledged_by_all=acknowledged_by_all,
        entries=tuple(entries),
        inactive=tuple(sorted(inactive)),
    )


def _entry(
    instance_id: str, runtime_id: str, number: int, joined: int, state: str, properties: object
) -> InstanceEntry:
    """Read one instance; what isn't a text is no property."""
    given = properties if isinstance(properties, dict) else {}
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    me = Incarnation(instance_id, runtime_id)
    return InstanceEntry(me, number, joined, InstanceState(state), texts)


def _session(url: str, patience_s: float) -> StoreSession:
    """Return a session of which all errors are `StoreUnavailable`.

    A commit is not waited for until it is on disk, unless its transaction says so.
    """
    milliseconds = int(patience_s * 1000)
    limits = Timeouts(milliseconds * 3 // 4, milliseconds // 2, milliseconds)
    connect = partial(
        bookkeeper_connection,
        url,
        "packhorse-topology",
        patience_s,
        prepare_threshold=1,
        connect_timeout=str(max(2, int(patience_s))),
        tcp_user_timeout=str(milliseconds),
        session=limits.settings
        | {"synchronous_commit": "off", "plan_cache_mode": "force_generic_plan"},
    )
    return StoreSession(connect, away=(psycopg.Error,), trusted=True)
