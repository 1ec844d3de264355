"""The jobs service's own table, for the migrations' sake."""

from sqlalchemy import BigInteger, Column, DateTime, Index, LargeBinary, Table, Text, func

from packhorse.db.metadata import JOBS, METADATA

REQUEST_KEY = Table(
    "request_key",
    METADATA,
    Column("caller", Text(collation="C"), primary_key=True),
    Column("key", Text(collation="C"), primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("number", BigInteger),
    Column(
        "created_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.clock_timestamp(),
    ),
    Index("request_key_age", "created_at"),
    schema=JOBS,
)
"""What a caller's Idempotency-Key has led to; forgotten after a day."""
