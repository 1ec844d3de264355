"""Acting as one of the three database roles, for a transaction or a whole session (R23)."""

from psycopg import Connection, sql


def role_statement(role: str) -> sql.Composed:
    """Return the statement with which the rest of a transaction has only the rights of `role`."""
    return sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role))


def act_as(connection: Connection, role: str) -> None:
    """Do what follows in this transaction with the rights of `role` alone."""
    connection.execute(role_statement(role))


def act_always_as(connection: Connection, role: str) -> None:
    """Do what follows in this session with the rights of `role`, where no other is acted as."""
    connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
