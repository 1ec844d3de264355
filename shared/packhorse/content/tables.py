"""The table of nodes, as the migrations make it."""

from sqlalchemy import CheckConstraint, Column, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from packhorse.db.metadata import CONTENT, METADATA

NODE = Table(
    "node",
    METADATA,
    Column("path", Text(collation="C"), primary_key=True),
    Column("type", Text, nullable=False),
    Column("properties", JSONB, nullable=False),
    Column("binaries", JSONB, nullable=False),
    CheckConstraint("starts_with(path, '/') AND octet_length(path) <= 2048", name="ck_node_path"),
    CheckConstraint("jsonb_typeof(properties) = 'object'", name="ck_node_properties"),
    CheckConstraint("jsonb_typeof(binaries) = 'object'", name="ck_node_binaries"),
    schema=CONTENT,
)
