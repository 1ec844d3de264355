"""Tables of the topology's voting store."""

from alembic import op

revision = "0010"
down_revision = "0009"

STATEMENTS: tuple[str, ...] = ()


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
