"""A database is its owner's: other logins of the server can't enter it.

The roles of R23 belong to the server, so a login that was granted them for its own database could
use them in each database that it can enter.
"""

from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.execute(
        "DO $$ BEGIN EXECUTE format("
        "'REVOKE CONNECT, TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()"
        "); END $$"
    )
