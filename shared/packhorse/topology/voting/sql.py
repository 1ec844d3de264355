"""The voting store on Postgres: what one instance has written, all others see at once."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from psycopg import Connection, Rollback
from psycopg.types.json import Jsonb

from packhorse.db.run_sessions import end_sessions
from packhorse.topology.patience import bookkeeper_connection
from packhorse.topology.store_session import StoreSession
from packhorse.topology.voting.records import Heartbeat, Member, StoreView, Vote, Voting

_FORGET_AFTER = "1 day"
"""Heartbeats of instances that never came back go then, with the next view."""

_READ = """
    SELECT coalesce((SELECT id FROM topology.cluster), ''),
        (SELECT coalesce(json_agg(json_build_array(instance_id, runtime_id, prefix, started_ms,
            count, acknowledged, properties)), '[]') FROM topology.heartbeat),
        (SELECT coalesce(json_agg(v), '[]') FROM topology.voting v),
        (SELECT coalesce(json_agg(json_build_array(voting_id, instance_id, yes)), '[]')
            FROM topology.vote),
        (SELECT CASE WHEN id = %(known)s THEN to_json(id) ELSE to_json(v) END
            FROM topology.established_view v),
        (SELECT CASE WHEN id = %(before)s THEN to_json(id) ELSE to_json(v) END
            FROM topology.previous_view v)
"""
"""Views that are known already are not sent again."""

_WRITE = """
    INSERT INTO topology.heartbeat AS h
        (instance_id, runtime_id, prefix, started_ms, count, acknowledged, properties)
    VALUES (%(instance_id)s, %(runtime_id)s, %(prefix)s, %(started_ms)s, %(count)s,
        %(acknowledged)s, %(properties)s)
    ON CONFLICT (instance_id) DO UPDATE SET runtime_id = excluded.runtime_id,
        prefix = excluded.prefix, started_ms = excluded.started_ms, count = excluded.count,
        acknowledged = excluded.acknowledged, properties = excluded.properties,
        beaten_at = clock_timestamp()
    WHERE h.runtime_id IN (excluded.runtime_id, %(over)s)
    RETURNING true
"""

_REWRITE = """
    UPDATE topology.heartbeat SET count = %(count)s, acknowledged = %(acknowledged)s,
        beaten_at = clock_timestamp()
    WHERE instance_id = %(instance_id)s AND runtime_id = %(runtime_id)s
    RETURNING true
"""


class SqlVotingStore:
    """A `VotingStore` with one connection of its own; see there for what is promised."""

    def __init__(self, url: str, instance_id: str) -> None:
        self._instance_id = instance_id
        self._session = StoreSession(partial(bookkeeper_connection, url, f"voting {instance_id}"))
        self._stored: tuple[Member, Mapping[str, str]] | None = None
        self._views: tuple[Voting | None, Voting | None] = (None, None)

    def start_time(self) -> int:
        """See `VotingStore.start_time`: the database's clock, or one more than the last."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO topology.cluster (id) VALUES (gen_random_uuid()) "
                "ON CONFLICT DO NOTHING"
            )
            [(started_ms,)] = connection.execute(
                """
                INSERT INTO topology.last_start AS l (started_ms)
                VALUES (floor(extract(epoch FROM clock_timestamp()) * 1000))
                ON CONFLICT (singleton) DO UPDATE
                SET started_ms = greatest(excluded.started_ms, l.started_ms + 1)
                RETURNING started_ms
                """
            ).fetchall()
        return int(started_ms)

    def beat(self, heartbeat: Heartbeat, over: str = "") -> bool:
        """See `VotingStore.beat`; others are notified of what is new in it."""
        known, self._stored = self._stored, None  # unknown until the answer is there
        news = (heartbeat.member, heartbeat.properties)
        values = _columns(heartbeat) | {"over": over}
        with self._transaction() as connection:
            row = connection.execute(_REWRITE, values).fetchone() if known == news else None
            row = row or connection.execute(_WRITE, values).fetchone()
        if row is not None:
            self._stored = news
            if known != news:
                self._session.notify()
        return row is not None

    def read(self) -> StoreView:
        """See `VotingStore.read`: one moment of the database."""
        known, before = (None if view is None else view.id for view in self._views)
        with self._transaction() as connection:
            [(cluster_id, beats, votings, votes, *views)] = connection.execute(
                _READ, {"known": known, "before": before}
            ).fetchall()
        established, previous = self._views
        self._views = (_view(established, views[0]), _view(previous, views[1]))
        return StoreView(
            cluster_id=cluster_id,
            heartbeats=tuple(_heartbeat(one) for one in beats),
            votings=tuple(_voting(one) for one in votings),
            votes=frozenset(Vote(*one) for one in votes),
            established=self._views[0],
            previous=self._views[1],
        )

    def propose(self, voting: Voting) -> None:
        """See `VotingStore.propose`."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO topology.voting (id, replaces, initiator, members) "
                "VALUES (%s, %s, %s, %s)",
                (voting.id, voting.replaces, voting.initiator, _members(voting)),
            )
            _cast(connection, Vote(voting.id, voting.initiator, True))
        self._session.notify()

    def vote(self, vote: Vote) -> None:
        """See `VotingStore.vote`; only the initiator is notified."""
        with self._transaction() as connection:
            initiator = _cast(connection, vote)
        if initiator is not None:
            self._session.notify(initiator)

    def withdraw(self, voting_id: str) -> None:
        """See `VotingStore.withdraw`."""
        with self._transaction() as connection:
            gone = connection.execute(
                "DELETE FROM topology.voting WHERE id = %s RETURNING true", (voting_id,)
            ).fetchone()
        if gone:
            self._session.notify()

    def promote(self, voting: Voting) -> bool:
        """See `VotingStore.promote`; ends the leader-only work of those who are left out."""
        left_out: frozenset[str] | None = None
        with self._transaction() as connection:
            left_out = _promote(connection, voting)
            if left_out:  # before the commit, so that nobody is voted out and works on
                end_sessions(connection, left_out)
        if left_out is None:
            return False
        self._session.notify()
        return True

    def leave(self, instance_id: str, runtime_id: str) -> None:
        """See `VotingStore.leave`."""
        with self._transaction() as connection:
            connection.execute(
                "DELETE FROM topology.heartbeat WHERE instance_id = %s AND runtime_id = %s",
                (instance_id, runtime_id),
            )
        self._session.notify()

    def wait(self, seconds: float) -> bool:
        """See `VotingStore.wait`: hints are for all, or for one instance."""
        return self._session.wait(seconds, lambda payload: payload in ("", self._instance_id))

    def wake(self) -> None:
        """See `VotingStore.wake`."""
        self._session.wake()

    def close(self) -> None:
        """See `VotingStore.close`."""
        self._session.close()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._session.use() as connection, connection.transaction():
            yield connection


def _cast(connection: Connection, vote: Vote) -> str | None:
    """Return the voting's initiator, or None when the vote did not count."""
    row = connection.execute(
        """
        WITH cast_now AS (
            INSERT INTO topology.vote (voting_id, instance_id, yes)
            SELECT id, %s, %s FROM topology.voting WHERE id = %s FOR KEY SHARE
            ON CONFLICT DO NOTHING RETURNING voting_id)
        SELECT initiator FROM topology.voting JOIN cast_now ON id = voting_id
        """,
        (vote.instance_id, vote.yes, vote.voting_id),
    ).fetchone()
    return None if row is None else str(row[0])


def _promote(connection: Connection, voting: Voting) -> frozenset[str] | None:
    """Return the runtime ids of those who are left out, or None when it is not to be."""
    row = connection.execute(
        "SELECT to_jsonb(v) FROM topology.established_view v FOR UPDATE"
    ).fetchone()
    before = None if row is None else _voting(row[0])
    replaced = "" if before is None else before.id
    if replaced != voting.replaces or not _has_ended_with_yes(connection, voting):
        return None
    if not _replace_view(connection, voting):
        raise Rollback
    _forget(connection, voting)
    left_out = frozenset() if before is None else before.members - voting.members
    return frozenset(one.runtime_id for one in left_out)


def _replace_view(connection: Connection, voting: Voting) -> bool:
    """Write the established view and the previous one; false if another first one came between."""
    connection.execute(
        """
        INSERT INTO topology.previous_view (id, replaces, initiator, members, promoted_at)
        SELECT id, replaces, initiator, members, promoted_at FROM topology.established_view
        ON CONFLICT (singleton) DO UPDATE SET id = excluded.id, replaces = excluded.replaces,
            initiator = excluded.initiator, members = excluded.members,
            promoted_at = excluded.promoted_at
        """
    )
    established = connection.execute(
        """
        INSERT INTO topology.established_view AS v (id, replaces, initiator, members)
        VALUES (%s, %s, %s, %s)
        ON CONFLICT (singleton) DO UPDATE SET id = excluded.id, replaces = excluded.replaces,
            initiator = excluded.initiator, members = excluded.members,
            promoted_at = clock_timestamp()
        WHERE v.id = excluded.replaces
        RETURNING true
        """,
        (voting.id, voting.replaces, voting.initiator, _members(voting)),
    ).fetchone()
    return established is not None


def _has_ended_with_yes(connection: Connection, voting: Voting) -> bool:
    return (
        connection.execute(
            """
            DELETE FROM topology.voting v WHERE id = %s AND jsonb_array_length(members) =
                (SELECT count(*) FROM topology.vote WHERE voting_id = v.id AND yes)
            RETURNING true
            """,
            (voting.id,),
        ).fetchone()
        is not None
    )


def _forget(connection: Connection, voting: Voting) -> None:
    connection.execute(
        "DELETE FROM topology.heartbeat WHERE instance_id <> ALL (%s) "
        "AND beaten_at < clock_timestamp() - %s::interval",
        ([one.instance_id for one in voting.members], _FORGET_AFTER),
    )


def _columns(heartbeat: Heartbeat) -> dict[str, Any]:
    return asdict(heartbeat.member) | {
        "count": heartbeat.count,
        "acknowledged": heartbeat.acknowledged,
        "properties": Jsonb(dict(heartbeat.properties)),
    }


def _members(voting: Voting) -> Jsonb:
    return Jsonb([asdict(member) for member in voting.in_order])


def _heartbeat(row: Sequence[Any]) -> Heartbeat:
    return Heartbeat(Member(*row[:4]), *row[4:])


def _view(kept: Voting | None, sent: Any) -> Voting | None:
    """Return the view that was sent: a row, the id of the one that is kept, or none."""
    if sent is None or isinstance(sent, str):
        return None if sent is None else kept
    return _voting(sent)


def _voting(row: dict[str, Any]) -> Voting:
    members = frozenset(Member(**member) for member in row["members"])
    return Voting(row["id"], row["replaces"], row["initiator"], members)
