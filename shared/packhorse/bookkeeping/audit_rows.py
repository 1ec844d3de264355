"""Who did what, as a row of the audit: publishers and subscribers write it, each in its database.

Rows are written in the transaction that they record, and never changed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, Connection

_INSERT = """
    INSERT INTO bookkeeping.audit
        (subscriber, publisher_agent, command_id, issued_by, action, detail)
    VALUES (%s, %s, %s, %s, %s, %s)
"""


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
