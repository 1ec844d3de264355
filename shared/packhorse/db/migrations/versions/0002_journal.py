"""Tables of the journal."""

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    pass
