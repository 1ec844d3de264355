"""The topology's tables, as the migrations make them."""

from sqlalchemy import Column, DateTime, Double, Index, Table, Text

from packhorse.db.metadata import METADATA, TOPOLOGY

ANNOUNCEMENT = Table(
    "announcement",
    METADATA,
    Column("owner", Text(collation="C"), primary_key=True),
    Column("holder", Text(collation="C"), primary_key=True),
    Column("address", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("backoff_interval_s", Double, nullable=False),
    Column("received_at", DateTime(timezone=True), nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    schema=TOPOLOGY,
)
"""What peers have announced, for as long as it holds; `holder` is "" where the peer connects."""

NONCE = Table(
    "nonce",
    METADATA,
    Column("nonce", Text(collation="C"), primary_key=True),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Index("nonce_expiry", "expires_at"),
    schema=TOPOLOGY,
)
"""Nonces of accepted requests, for as long as their signatures could be accepted again."""
