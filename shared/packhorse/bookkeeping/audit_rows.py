"""Who did what, as a row of the audit: each service writes it in the database that it changes.

Rows are written in the transaction that they record, and never changed. Those of an operator's
commands have its id; acts, such as a write of content, have none and are kept for 30 days.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, Connection

from packhorse.runtime import audit, tracing

_INSERT = """
    INSERT INTO bookkeeping.audit
        (subscriber, publisher_agent, command_id, issued_by, action, detail)
    VALUES (%s, %s, %s, %s, %s, %s)
"""
_FORGET = """
    DELETE FROM bookkeeping.audit WHERE id IN (
        SELECT id FROM bookkeeping.audit
        WHERE command_id = '' AND happened_at < now() - interval '30 days'
        ORDER BY happened_at, id LIMIT 2000 FOR UPDATE SKIP LOCKED)
"""
_FORGETS = 0.01
"""Of the writers of acts one in so many forgets what is old: 20 for each that was added."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """What `issued_by` did to a subscriber's packages of one publisher agent."""

    subscriber: str
    publisher_agent: str
    command_id: str
    issued_by: str
    action: str
    detail: Mapping[str, Any]

    @property
    def _columns(self) -> tuple[str, ...]:
        return (
            self.subscriber,
            self.publisher_agent,
            self.command_id,
            self.issued_by,
            self.action,
            json.dumps(dict(self.detail)),
        )

    def write(self, connection: Connection) -> None:
        """Write the row in the caller's transaction."""
        connection.execute(_INSERT, self._columns)

    async def write_async(self, connection: AsyncConnection) -> None:
        """Write the row in the caller's transaction."""
        await connection.execute(_INSERT, self._columns)


def write_act(connection: Connection) -> None:
    """Write that the present request does something, in the transaction in which it does it.

    Nothing is written outside a request. With the bookkeeper's rights.
    """
    if (row := _present()) is not None:
        row.write(connection)
        if random.random() < _FORGETS:  # noqa: S311 - whose turn it is
            connection.execute(_FORGET)


async def write_act_async(connection: AsyncConnection) -> None:
    """Do the same over an asynchronous connection."""
    if (row := _present()) is not None:
        await row.write_async(connection)
        if random.random() < _FORGETS:  # noqa: S311 - whose turn it is
            await connection.execute(_FORGET)


def write_act_of(connection: Connection, caller: str, members: Mapping[str, Any]) -> None:
    """Write what a program does outside a request: `operation`, `method`, `object` and more."""
    detail = {**members, "trace": tracing.trace_id()}
    AuditRow("", "", "", caller, str(members["operation"]), detail).write(connection)


def _present() -> AuditRow | None:
    if (act := audit.present_act()) is None:
        return None
    caller, members = act
    detail = {**members, "trace": tracing.trace_id()}
    return AuditRow("", "", "", caller, str(members.get("operation", "")), detail)
