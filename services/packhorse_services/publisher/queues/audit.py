"""Who did what at the publisher that is no command to a subscriber: a row of the audit for each."""

import uuid
from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection

from packhorse.bookkeeping.audit_rows import AuditRow


async def audit(
    connection: AsyncConnection, whose: tuple[str, str, str], action: str, detail: Mapping[str, Any]
) -> None:
    """Write it down in the caller's transaction; `whose`: subscriber, publisher agent, caller."""
    subscriber, agent, user = whose
    row = AuditRow(subscriber, agent, uuid.uuid4().hex, user, action, detail)
    await row.write_async(connection)
