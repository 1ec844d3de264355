"""Acts without a command, such as writes of content and of jobs, are looked for by their time."""

from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.execute(
        "CREATE INDEX audit_acts ON bookkeeping.audit (happened_at, id) WHERE command_id = ''"
    )
