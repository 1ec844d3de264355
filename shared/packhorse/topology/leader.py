"""Leader-only work: a task that one instance may do at a time, fenced by the database.

A view says to an instance that it leads, and may be outdated when the instance acts on it. So the
right to act is a row: whoever takes the task over raises the epoch, and the work's transaction
holds the row as it was, or fails.
"""

from dataclasses import dataclass
from typing import Protocol

import psycopg
from psycopg import Connection

from packhorse.db.connect import AWAY
from packhorse.db.run_sessions import tie_transaction
from packhorse.db.transactions import Connect, writing
from packhorse.errors import Transient
from packhorse.topology.membership import StoreUnavailable

_PATIENCE = "1s"
"""How long `take` waits for a former holder's commit; the own lease must not run out meanwhile."""

_PAUSE = "2s"
"""How long its transaction may stand still: that of a paused process would keep others from
declaring the instance dead."""


class NotLeader(Transient):
    """Another instance has the leader task now, or none; the transaction must be rolled back."""


class ElectionOrder(Protocol):
    """What the cluster's store says of whose a leader task is, for one incarnation."""

    @property
    def instance_id(self) -> str:
        """The persistent id of the incarnation that asks."""
        ...

    @property
    def runtime_id(self) -> str:
        """The id of its run."""
        ...

    def is_first(self, connection: Connection, leader_task: str, *, keep: bool) -> bool:
        """Return whether it is the first live instance, in the stable order, with the leader task.

        Asked in a transaction as the bookkeeper; with `keep` it stays a member until that ends.
        """
        ...


@dataclass(frozen=True, slots=True)
class LeaseElectionOrder:
    """`ElectionOrder` by the stored order of the active instances.

    An instance whose lease has run out keeps its turn until another one retires it, and a
    deactivating one until its backlog is settled: nobody is first meanwhile.
    """

    instance_id: str
    runtime_id: str

    def is_first(self, connection: Connection, leader_task: str, *, keep: bool) -> bool:
        """See `ElectionOrder.is_first`; false when the own lease has run out."""
        own = connection.execute(
            f"""
            SELECT joined FROM topology.instance WHERE id = %s AND runtime_id = %s
            AND state = 'ACTIVE' AND lease_end > clock_timestamp() {"FOR SHARE" if keep else ""}
            """,  # noqa: S608
            (self.instance_id, self.runtime_id),
        ).fetchone()
        if own is None:
            return False
        first = connection.execute(
            """
            SELECT min(joined) FROM topology.instance WHERE state <> 'INACTIVE' AND %s = ANY (
                string_to_array(replace(properties ->> 'packhorse.duties', ' ', ''), ','))
            """,
            (leader_task,),
        ).fetchone()
        return first == own


@dataclass(frozen=True, slots=True)
class VotingElectionOrder:
    """`ElectionOrder` by the order of the established view.

    A member that has died keeps its turn until a view without it is promoted: nobody is first
    meanwhile. So it is with one that was started again. One that has left passes its turn on.
    """

    instance_id: str
    runtime_id: str

    def is_first(self, connection: Connection, leader_task: str, *, keep: bool) -> bool:
        """See `ElectionOrder.is_first`; `keep` holds off the next view."""
        first = connection.execute(
            f"""
            SELECT m.instance_id, m.runtime_id
            FROM (SELECT members FROM topology.established_view {"FOR SHARE" if keep else ""}) v,
                jsonb_to_recordset(v.members) AS m
                    (instance_id text, runtime_id text, prefix text, started_ms bigint)
                JOIN topology.heartbeat h USING (instance_id)
            WHERE %s = ANY (
                string_to_array(replace(h.properties ->> 'packhorse.duties', ' ', ''), ','))
            ORDER BY (m.prefix || '_' || lpad(m.started_ms::text, 19, '0') || '_'
                || m.instance_id) COLLATE "C"
            LIMIT 1
            """,  # noqa: S608
            (leader_task,),
        ).fetchone()
        return first == (self.instance_id, self.runtime_id)


@dataclass(frozen=True, slots=True)
class Token:
    """The right to do a leader task, for as long as nobody has taken it over."""

    leader_task: str
    holder: str
    runtime_id: str
    epoch: int
    """Grows with every change of the holder; for stores outside the database that compare it."""

    def check(self, connection: Connection) -> None:
        """Call in the transaction of the work, which acts as the bookkeeper; holds until it ends.

        Nobody takes the leader task over before that transaction has ended, unless its instance is
        declared dead, which ends the session. Raises `NotLeader`: then roll back.
        """
        try:
            tie_transaction(connection, self.runtime_id)
            held = connection.execute(
                "SELECT FROM topology.duty WHERE name = %s AND holder = %s AND runtime_id = %s "
                "AND epoch = %s FOR SHARE",
                (self.leader_task, self.holder, self.runtime_id, self.epoch),
            ).fetchone()
        except psycopg.errors.SerializationFailure as error:
            raise NotLeader(
                f"the leader task {self.leader_task} was taken over meanwhile"
            ) from error
        if held is None:
            raise NotLeader(f"the leader task {self.leader_task} is no longer this instance's")


class LeaderOnly:
    """The task `name` of the first live instance that has it in `packhorse.leader-tasks`."""

    def __init__(
        self,
        name: str,
        election_order: ElectionOrder,
        connect: Connect,
    ) -> None:
        """Take `connect` from a pool: `pool.connection`. `name` has no comma."""
        self.name = name
        self._election_order, self._connect = election_order, connect

    def take(self) -> Token | None:
        """Return the right to do the task; None while it is another's, or the old one commits.

        Cheap while nothing changes, so it is asked before each piece of work. Raises
        `StoreUnavailable`.
        """
        try:
            with writing(self._connect) as connection:
                epoch = self._epoch(connection)
                if epoch is None:
                    epoch = self._take_over(connection)
        except psycopg.errors.LockNotAvailable:
            return None
        except AWAY as error:
            raise StoreUnavailable(
                f"the leader task {self.name} can't be taken: {error}"
            ) from error
        who = self._election_order
        return None if epoch is None else Token(self.name, who.instance_id, who.runtime_id, epoch)

    def _epoch(self, connection: Connection) -> int | None:
        """Return the epoch if the leader task is held already and still due."""
        who = self._election_order
        row = connection.execute(
            "SELECT epoch FROM topology.duty WHERE name = %s AND holder = %s AND runtime_id = %s",
            (self.name, who.instance_id, who.runtime_id),
        ).fetchone()
        held = row is not None and who.is_first(connection, self.name, keep=False)
        return int(row[0]) if row is not None and held else None

    def _take_over(self, connection: Connection) -> int | None:
        connection.execute(
            "SELECT set_config('lock_timeout', %s, true), "
            "set_config('idle_in_transaction_session_timeout', %s, true)",
            (_PATIENCE, _PAUSE),
        )
        who = self._election_order
        if not who.is_first(connection, self.name, keep=True):
            return None
        rows = connection.execute(
            """
            INSERT INTO topology.duty AS d (name, holder, runtime_id, epoch)
            VALUES (%s, %s, %s, 1)
            ON CONFLICT (name) DO UPDATE SET holder = excluded.holder,
                runtime_id = excluded.runtime_id, epoch = d.epoch + 1,
                taken_at = clock_timestamp()
            RETURNING epoch
            """,
            (self.name, who.instance_id, who.runtime_id),
        ).fetchall()
        return int(rows[0][0])


def revoke(connection: Connection, runtime_id: str) -> None:
    """Take all leader tasks from an incarnation; waits for its transactions, as the bookkeeper."""
    connection.execute(
        """
        UPDATE topology.duty SET holder = '', runtime_id = '', epoch = epoch + 1,
            taken_at = clock_timestamp()
        WHERE runtime_id = %s
        """,
        (runtime_id,),
    )
