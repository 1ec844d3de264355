"""Tables of the topology's lease store."""

from alembic import op

revision = "0009"
down_revision = "0008"

STATEMENTS = (
    "CREATE SCHEMA topology",
    "GRANT USAGE ON SCHEMA topology TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
