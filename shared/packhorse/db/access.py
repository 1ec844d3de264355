"""Who may enter a database: its owner and who was granted it, not every login of the server."""

import psycopg

_OPEN = """
    SELECT EXISTS (
        SELECT FROM pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
        WHERE d.datname = current_database() AND a.grantee = 0 AND a.privilege_type = 'CONNECT')
"""


def open_to_all(connection: psycopg.Connection) -> bool:
    """Return whether every login of the server may connect, as to a copy or a restored database.

    A migration takes that right away, but what PostgreSQL copies or restores has it again.
    """
    row = connection.execute(_OPEN).fetchone()
    return row is not None and bool(row[0])
