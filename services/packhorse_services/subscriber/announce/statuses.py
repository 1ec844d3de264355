"""Statuses: written with the import, sent afterwards, marked sent in a second transaction (R9)."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from psycopg import Connection

from packhorse.messaging.api import Journal, Outgoing
from packhorse.runtime.periodic import Periodic
from packhorse.runtime.tracing import inject
from packhorse.wire.codec import encode_status
from packhorse.wire.command_codec import encode_command_status
from packhorse.wire.messages import Status, StatusMessage
from packhorse.wire.record import Encoded
from packhorse_services.subscriber.announce.announcer import Identity
from packhorse_services.subscriber.announce.subscription_report import Settled
from packhorse_services.subscriber.commands import ledger
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.position import Position

_BATCH = 1_000
_APPEND_TIMEOUT_S = 30.0
_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one package of a subscription."""

    mark: Mark
    status: Status
    attempts: int = 0
    reason: str = ""
    command_id: str = ""
    left_out: bool = False
    """Of SKIPPED: it is not for this subscriber (R35)."""


def left_out(mark: Mark, reason: str) -> Decision:
    """Return the decision about a package that is not for this subscriber."""
    return Decision(mark, Status.SKIPPED, reason=reason, left_out=True)


_RECORD = """
INSERT INTO bookkeeping.status (
    publisher_agent, journal_id, subscriber,
    log_offset, package_id, status, attempts, reason, command_id, left_out)
SELECT %s, %s, %s, decided.* FROM unnest(
    %s::bigint[], %s::text[], %s::text[], %s::int[], %s::text[], %s::text[],
    %s::boolean[]) AS decided
ON CONFLICT (publisher_agent, log_offset) DO UPDATE SET
    journal_id = excluded.journal_id,
    subscriber = excluded.subscriber, package_id = excluded.package_id,
    status = excluded.status, attempts = excluded.attempts, reason = excluded.reason,
    command_id = excluded.command_id, decided_at = excluded.decided_at,
    left_out = excluded.left_out
"""


def record_statuses(
    connection: Connection, subscriber: str, position: Position, decisions: Sequence[Decision]
) -> None:
    """Store a subscription's statuses in the caller's transaction, to be sent later."""
    if not decisions:
        return
    connection.execute(
        _RECORD,
        (
            position.agent,
            position.journal_id,
            subscriber,
            [decision.mark.offset for decision in decisions],
            [decision.mark.package_id for decision in decisions],
            [decision.status.value for decision in decisions],
            [decision.attempts for decision in decisions],
            [decision.reason for decision in decisions],
            [decision.command_id for decision in decisions],
            [decision.left_out for decision in decisions],
        ),
    )


def _nobody(_: Mapping[str, Settled], _awaited: bool) -> None:
    pass


class StatusSender(Periodic):
    """A component that sends the statuses of each subscription in its order, at least once.

    After a round that was asked for, or that got further, `on_settled` hears for each publisher
    agent up to where every status is in the journal; it also hears of rounds that failed,
    with what they had settled before. And whether somebody waits for what the round has sent.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        journal: Journal,
        topic: str,
        identity: Identity,
        *,
        may_send: Callable[[], bool],
        on_settled: Callable[[Mapping[str, Settled], bool], None] = _nobody,
    ) -> None:
        self._connect, self._journal, self._topic = connect, journal, topic
        self._subscriber, self._instance = identity.subscriber, identity.instance
        self._may_send, self._on_settled = may_send, on_settled
        self._connection: Connection | None = None
        self._settled: dict[str, Settled] = {}
        self._requested, self._awaited = threading.Event(), threading.Event()
        super().__init__("statuses", _INTERVAL_S, self._round, at_once=True)

    def kick(self, *, awaited: bool = False) -> None:
        """Send soon; `awaited` says that somebody waits for what is to be sent."""
        if awaited:
            self._awaited.set()
        self._requested.set()
        super().kick()

    def stop(self, timeout: float) -> None:
        """End, and close the database connection."""
        super().stop(timeout)
        if self._connection is not None:
            self._connection.close()

    def send(self) -> None:
        """Send every status that is not marked sent, unless another worker has the lease.

        Raises what the journal or the database raises; what was not marked is sent again.
        """
        if not self._may_send():
            return
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        # Read first and sent last: statuses of packages go out before the command's end.
        ended = ledger.unsent(self._connection, self._subscriber, self._instance)
        positions = self._connection.execute(
            "SELECT publisher_agent, journal_id, epoch, log_offset FROM bookkeeping.position"
        )
        for agent, *place in positions.fetchall():
            now = Settled(*place)
            while (sent := self._send_batch(self._connection, agent, now.epoch)) == _BATCH:
                pass
            if sent is not None:
                # What was decided up to this position was committed before it was read.
                self._settled[agent] = now
        if ended:
            self._append([encode_command_status(each) for each in ended])
            with self._connection.transaction():
                ledger.mark_sent(self._connection, ended)

    def _round(self) -> None:
        requested, before = self._requested.is_set(), dict(self._settled)
        self._requested.clear()
        awaited = self._awaited.is_set()
        self._awaited.clear()
        try:
            self.send()
        finally:
            if requested or awaited or self._settled != before:
                self._on_settled(dict(self._settled), awaited)

    def _send_batch(self, connection: Connection, agent: str, epoch: int) -> int | None:
        """Send some; returns how many, None when the subscription was moved.

        They are sent anew then.
        """
        messages = _unsent(connection, agent, self._instance)
        if not messages:
            return 0
        self._append([encode_status(message) for message in messages])
        marked = _mark_sent(connection, agent, epoch, messages[-1].offset)
        return len(messages) if marked else None

    def _append(self, encoded: Sequence[Encoded]) -> None:
        trace = inject()
        futures = [
            self._journal.append(self._topic, Outgoing(each.value, {**each.headers, **trace}))
            for each in encoded
        ]
        for future in futures:
            future.result(_APPEND_TIMEOUT_S)


def _unsent(connection: Connection, agent: str, instance: str) -> list[StatusMessage]:
    rows = connection.execute(
        """
        SELECT subscriber, log_offset, status, package_id, attempts, reason, command_id,
            (extract(epoch FROM decided_at) * 1000)::bigint, journal_id, left_out
        FROM bookkeeping.status
        WHERE publisher_agent = %(agent)s AND log_offset > coalesce((
            SELECT log_offset FROM bookkeeping.status_mark
            WHERE publisher_agent = %(agent)s), -1)
        ORDER BY log_offset LIMIT %(limit)s
        """,
        {"agent": agent, "limit": _BATCH},
    ).fetchall()
    return [
        StatusMessage(
            subscriber=name,
            publisher_agent=agent,
            offset=offset,
            status=Status(status),
            package_id=package,
            attempts=attempts,
            reason=reason,
            command_id=command,
            decided_ms=decided,
            subscriber_instance=instance,
            journal_id=journal,
            left_out=left,
        )
        for name, offset, status, package, attempts, reason, command, decided, journal, left in rows
    ]


_MARK = """
INSERT INTO bookkeeping.status_mark (publisher_agent, log_offset)
SELECT publisher_agent, %s FROM bookkeeping.position
WHERE publisher_agent = %s AND epoch = %s
ON CONFLICT (publisher_agent) DO UPDATE
SET log_offset = greatest(status_mark.log_offset, excluded.log_offset)
"""
_FORGET = """
DELETE FROM bookkeeping.status
WHERE publisher_agent = %(agent)s AND log_offset <= %(offset)s
AND (status = 'IMPORTED' OR decided_at < now() - interval '7 days'
    AND log_offset NOT IN (
        SELECT max(log_offset) FROM bookkeeping.status
        WHERE publisher_agent = %(agent)s AND status <> 'IMPORTED'
        GROUP BY journal_id, subscriber, status))
"""


def _mark_sent(connection: Connection, agent: str, epoch: int, offset: int) -> bool:
    """Move the mark; forget what is sent, failures and removals after a week.

    The newest of each kind stays: without it nobody would know that a snapshot may not bring back
    what was removed.

    False when the epoch is another by now: a reset of the subscription may have moved the mark
    down.
    """
    with connection.transaction():
        # A reset holds this row alone; what follows then sees what it did.
        connection.execute(
            "SELECT FROM bookkeeping.subscription_control WHERE publisher_agent = %s FOR SHARE",
            (agent,),
        )
        marked = connection.execute(
            _MARK,
            (offset, agent, epoch),
        )
        if marked.rowcount == 0:
            return False
        connection.execute(
            _FORGET,
            {"agent": agent, "offset": offset},
        )
    return True
