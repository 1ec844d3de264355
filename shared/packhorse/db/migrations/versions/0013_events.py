"""Tables of events."""

from alembic import op

revision = "0013"
down_revision = "0012"

STATEMENTS: tuple[str, ...] = ()


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
