"""Tables of jobs."""

from alembic import op

revision = "0012"
down_revision = "0011"

STATEMENTS: tuple[str, ...] = (
    "CREATE SCHEMA jobs",
    "GRANT USAGE ON SCHEMA jobs TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
