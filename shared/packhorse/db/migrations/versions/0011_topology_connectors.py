"""Tables of the connectors between clusters."""

from alembic import op

revision = "0011"
down_revision = "0010"

STATEMENTS: tuple[str, ...] = ()


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
