"""Which commands a list shows, as SQLAlchemy Core composes it; loaded when a list is asked for."""

from typing import Any

from sqlalchemy import Select, select, tuple_

from packhorse_services.publisher.tables import COMMAND


def newest(
    agent: str, *, subscriber: str | None, state: str | None, behind: str | None, limit: int
) -> Select[Any]:
    """Select the newest commands, or those that follow the one with the id `behind`."""
    columns = COMMAND.c
    found = select(COMMAND).where(columns.agent == agent)
    if subscriber is not None:
        found = found.where(columns.subscriber == subscriber)
    if state is not None:
        found = found.where(columns.state == state)
    if behind is not None:
        last = COMMAND.alias("last").c
        place = select(last.issued_at, last.command_id).where(
            last.agent == agent, last.command_id == behind
        )
        number = tuple_(columns.issued_at, columns.command_id)
        found = found.where(number < place.scalar_subquery())
    return found.order_by(columns.issued_at.desc(), columns.command_id.desc()).limit(limit)
