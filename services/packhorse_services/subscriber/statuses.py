"""Statuses: written with the import, sent afterwards, marked sent in a second transaction (R9)."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from psycopg import Connection

from packhorse.messaging.api import Journal, Outgoing
from packhorse.runtime.periodic import Periodic
from packhorse.runtime.tracing import inject
from packhorse.wire.codec import encode_status
from packhorse.wire.messages import Status, StatusMessage
from packhorse_services.subscriber.arrivals import Mark

logger = logging.getLogger(__name__)

_BATCH = 1_000
_APPEND_TIMEOUT_S = 30.0
_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one package of a lane."""

    mark: Mark
    status: Status
    attempts: int = 0
    reason: str = ""
    command_id: str = ""


def record_statuses(
    connection: Connection, subscriber: str, agent: str, decisions: Sequence[Decision]
) -> None:
    """Write decisions in the caller's transaction, as statuses that are still to be sent."""
    if not decisions:
        return
    connection.execute(
        """
        INSERT INTO bookkeeping.status (
            publisher_agent, subscriber,
            log_offset, package_id, status, attempts, reason, command_id)
        SELECT %s, %s, decided.* FROM unnest(
            %s::bigint[], %s::text[], %s::text[], %s::int[], %s::text[], %s::text[]) AS decided
        ON CONFLICT (publisher_agent, log_offset) DO UPDATE SET
            subscriber = excluded.subscriber, package_id = excluded.package_id,
            status = excluded.status, attempts = excluded.attempts, reason = excluded.reason,
            command_id = excluded.command_id, decided_at = excluded.decided_at
        """,
        (
            agent,
            subscriber,
            [decision.mark.offset for decision in decisions],
            [decision.mark.package_id for decision in decisions],
            [decision.status.value for decision in decisions],
            [decision.attempts for decision in decisions],
            [decision.reason for decision in decisions],
            [decision.command_id for decision in decisions],
        ),
    )


class StatusSender:
    """A component that sends what the lanes have decided, in each lane's order, at least once."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        journal: Journal,
        topic: str,
        *,
        instance: str,
        may_send: Callable[[], bool],
    ) -> None:
        self._connect, self._journal, self._topic = connect, journal, topic
        self._instance, self._may_send = instance, may_send
        self._connection: Connection | None = None
        self._periodic = Periodic("statuses", _INTERVAL_S, self.send, at_once=True)

    def start(self) -> None:
        """Begin."""
        self._periodic.start()

    def kick(self) -> None:
        """Send soon."""
        self._periodic.kick()

    def stop(self, timeout: float) -> None:
        """End, and let go of the database."""
        self._periodic.stop(timeout)
        if self._connection is not None:
            self._connection.close()

    def failure(self) -> BaseException | None:
        """Return what ended the thread."""
        return self._periodic.failure()

    def send(self) -> None:
        """Send every status that is not marked sent, unless another worker has the lease.

        Raises what the journal or the database raises; what was not marked is sent again.
        """
        if not self._may_send():
            return
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        agents = self._connection.execute("SELECT publisher_agent FROM bookkeeping.position")
        for (agent,) in agents.fetchall():
            while self._send_batch(self._connection, agent) == _BATCH:
                pass

    def _send_batch(self, connection: Connection, agent: str) -> int:
        messages = _unsent(connection, agent, self._instance)
        if not messages:
            return 0
        encoded = [encode_status(message) for message in messages]
        trace = inject()
        futures = [
            self._journal.append(self._topic, Outgoing(each.value, {**each.headers, **trace}))
            for each in encoded
        ]
        for future in futures:
            future.result(_APPEND_TIMEOUT_S)
        _mark_sent(connection, agent, messages[-1].offset)
        return len(messages)


def _unsent(connection: Connection, agent: str, instance: str) -> list[StatusMessage]:
    rows = connection.execute(
        """
        SELECT subscriber, log_offset, status, package_id, attempts, reason,
            command_id, (extract(epoch FROM decided_at) * 1000)::bigint
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
            package_id=package_id,
            attempts=attempts,
            reason=reason,
            command_id=command_id,
            decided_ms=decided_ms,
            subscriber_instance=instance,
        )
        for name, offset, status, package_id, attempts, reason, command_id, decided_ms in rows
    ]


def _mark_sent(connection: Connection, agent: str, offset: int) -> None:
    """Move the mark; forget what is sent, failures and removals after a week."""
    with connection.transaction():
        connection.execute(
            """
            INSERT INTO bookkeeping.status_mark (publisher_agent, log_offset) VALUES (%s, %s)
            ON CONFLICT (publisher_agent) DO UPDATE
            SET log_offset = greatest(status_mark.log_offset, excluded.log_offset)
            """,
            (agent, offset),
        )
        connection.execute(
            """
            DELETE FROM bookkeeping.status
            WHERE publisher_agent = %s AND log_offset <= %s
            AND (status = 'IMPORTED' OR decided_at < now() - interval '7 days')
            """,
            (agent, offset),
        )
