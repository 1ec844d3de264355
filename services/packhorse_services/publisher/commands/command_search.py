"""Which commands a list shows, as SQLAlchemy Core composes it; loaded when a list is asked for."""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row
from sqlalchemy import Select, select, tuple_

from packhorse.db.composed import composed
from packhorse_services.publisher.commands.command_rows import CommandQuery, StoredCommand
from packhorse_services.publisher.tables import COMMAND


def page(connection: Connection, agent: str, wanted: CommandQuery) -> Sequence[StoredCommand]:
    """Return the newest commands, newest first, or the next after the one that the cursor names.

    Runs in the caller's transaction, as the bookkeeper. What follows a command that is forgotten
    by now is forgotten too: an empty page.
    """
    with connection.cursor(row_factory=class_row(StoredCommand)) as cursor:
        return cursor.execute(*composed(_newest(agent, wanted))).fetchall()


def _newest(agent: str, wanted: CommandQuery) -> Select[Any]:
    columns = COMMAND.c
    found = select(COMMAND).where(columns.agent == agent)
    if wanted.subscriber is not None:
        found = found.where(columns.subscriber == wanted.subscriber)
    if wanted.state is not None:
        found = found.where(columns.state == wanted.state)
    if wanted.cursor is not None:
        last = COMMAND.alias("last").c
        place = select(last.issued_at, last.command_id).where(
            last.agent == agent, last.command_id == wanted.cursor
        )
        number = tuple_(columns.issued_at, columns.command_id)
        found = found.where(number < place.scalar_subquery())
    order = columns.issued_at.desc(), columns.command_id.desc()
    return found.order_by(*order).limit(wanted.limit)
