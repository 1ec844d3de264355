"""Which entries of an error queue are meant, as SQLAlchemy Core composes it; loaded when asked."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    any_,
    func,
    literal,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY

from packhorse_services.publisher.tables import OUTCOME

_FAILED: ColumnElement[str] = literal_column("'REMOVED_FAILED'")
"""No parameter: the index of error queues is a partial one."""


def selected(
    agent: str,
    subscriber: str,
    *,
    offsets: Sequence[int] | None,
    reason: str | None,
    waiting: bool,
    limit: int,
) -> Select[Any]:
    """Select journal and offset of the entries that all of this holds for, oldest first."""
    columns = OUTCOME.c
    found = select(columns.journal_id, columns.log_offset).where(
        columns.agent == agent,
        columns.subscriber == subscriber,
        columns.status == _FAILED,
        columns.dismissed_at.is_(None),
    )
    if offsets is not None:
        found = found.where(columns.log_offset == any_(literal(list(offsets), ARRAY(BigInteger))))
    if reason is not None:
        found = found.where(func.strpos(func.lower(columns.reason), func.lower(reason)) > 0)
    if waiting:
        found = found.where(columns.redistributed_as == "")
    order = (columns.recorded_at, columns.log_offset, columns.journal_id)
    return found.order_by(*order).limit(limit)
