"""The SQL journal's tables, as the migrations make them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from packhorse.db.metadata import JOURNAL, METADATA

IDENTITY = Table(
    "identity",
    METADATA,
    Column("id", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
    Column("singleton", Boolean, primary_key=True, server_default=text("true")),
    CheckConstraint("singleton", name="ck_identity_singleton"),
    schema=JOURNAL,
)

TOPIC = Table(
    "topic",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text(collation="C"), nullable=False),
    Column("creation_id", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
    Column("retention_ms", BigInteger, nullable=False),
    Column("max_record_bytes", Integer, nullable=False),
    UniqueConstraint("name", name="uq_topic_name"),
    schema=JOURNAL,
)

PARTITION = Table(
    "partition",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column(
        "topic_id",
        ForeignKey(TOPIC.c.id, name="fk_partition_topic_id", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("number", Integer, nullable=False),
    Column("oldest", BigInteger, nullable=False, server_default=text("0")),
    Column("next", BigInteger, nullable=False, server_default=text("0")),
    Column("last_ms", BigInteger, nullable=False, server_default=text("0")),
    Column("segment_start", BigInteger),
    Column("segment_bytes", BigInteger, nullable=False, server_default=text("0")),
    UniqueConstraint("topic_id", "number", name="uq_partition_topic_id_number"),
    CheckConstraint("0 <= oldest AND oldest <= next", name="ck_partition_bounds"),
    schema=JOURNAL,
)

SEGMENT = Table(
    "segment",
    METADATA,
    Column(
        "partition_id",
        ForeignKey(PARTITION.c.id, name="fk_segment_partition_id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("first_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("first_ms", BigInteger, nullable=False),
    schema=JOURNAL,
)

APPENDER = Table(
    "appender",
    METADATA,
    Column(
        "topic_id",
        ForeignKey(TOPIC.c.id, name="fk_appender_topic_id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("role", Text, primary_key=True),
    schema=JOURNAL,
)

RECORD = Table(
    "record",
    METADATA,
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("time_ms", BigInteger, nullable=False),
    Column("append_id", BigInteger, nullable=False),
    Column("key", LargeBinary),
    Column("headers", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    schema=JOURNAL,
)
