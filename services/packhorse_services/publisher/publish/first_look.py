"""What a group's transaction begins with: most of what it asks the author for, in one exchange.

An exchange costs a publisher more than the statements that it carries, above all where requests
come one by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, LiteralString

from psycopg import ClientCursor, Connection, sql

from packhorse.content import tree
from packhorse.content.node import Node
from packhorse.content.rows import node_of
from packhorse.db.metadata import BOOKKEEPER, EXPORTER
from packhorse.db.roles import role_statement
from packhorse.wire.actions import exports
from packhorse_services.publisher.outbox import append_state, idempotency
from packhorse_services.publisher.outbox.append_state import AppendState
from packhorse_services.publisher.outbox.idempotency import CallerKey, KnownKey, keys_of
from packhorse_services.publisher.outbox.request import DistributionRequest, Pending

_SMALL_PATHS = 10
_NODES = 50
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ"

Statement = tuple[LiteralString | sql.Composed, Sequence[Any]]
"""A statement, and its parameters as `Connection.execute` takes them."""


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What one snapshot shows."""

    state: AppendState
    keys: Mapping[CallerKey, KnownKey]
    """What is known of the group's keys."""
    nodes: Mapping[str, Node | None] = field(default_factory=dict)
    """What is at some paths of its small requests, read with the exporter's rights (R23)."""


@contextmanager
def first_look(
    connection: Connection, agent: str, group: Sequence[Pending], *, nodes: bool
) -> Iterator[FirstLook]:
    """Begin a transaction, whose snapshot the look takes; it ends with the block.

    Is called as the bookkeeper, who also goes on. With `nodes` the first nodes of small requests
    are read, where the database is trusted to refuse none of them. Raises `psycopg.Error`.
    """
    try:
        yield _look(connection, agent, group, nodes=nodes)
    except BaseException:
        if not connection.closed:
            connection.rollback()
        raise
    connection.commit()


def is_small(request: DistributionRequest) -> bool:
    """Return whether a request is read together with others."""
    single = exports(request.action) and not (request.deep_paths or request.prepared)
    return single and len(request.paths) <= _SMALL_PATHS


def _look(
    connection: Connection, agent: str, group: Sequence[Pending], *, nodes: bool
) -> FirstLook:
    keys = keys_of(group)
    statements: list[Statement] = [(_BEGIN, ()), (append_state.READ, ())]
    statements += [idempotency.finding(agent, keys)] if keys else []
    paths = _small_paths(group) if nodes else []
    if paths:
        statements += [(role_statement(EXPORTER), ()), tree.reading(paths)]
        statements += [(role_statement(BOOKKEEPER), ())]
    _, [state], *found = exchange(connection, statements)
    known = idempotency.known_of(found.pop(0)) if keys else {}
    read = {node.path: node for node in map(node_of, found[1])} if paths else {}
    return FirstLook(AppendState(*state), known, {path: read.get(path) for path in paths})


def _small_paths(group: Sequence[Pending]) -> list[str]:
    small = (pending.request.paths for pending in group if is_small(pending.request))
    return list(islice(dict.fromkeys(chain.from_iterable(small)), _NODES))


def exchange(connection: Connection, statements: Sequence[Statement]) -> list[list[Any]]:
    """Carry out statements one after the other; returns the rows of each, or none.

    Those behind one that fails are not carried out. Outside of a transaction, and unless one of
    them begins it, they are one transaction. None is prepared: each is planned every time.
    """
    cursor = ClientCursor(connection)
    together = ";".join(cursor.mogrify(*statement) for statement in statements)
    cursor.execute(together.encode())
    found: list[list[Any]] = []
    for result in cursor.results():
        found.append(result.fetchall() if result.description else [])
    return found
