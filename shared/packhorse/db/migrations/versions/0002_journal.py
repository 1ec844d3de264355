"""The SQL journal: counters that give gapless offsets, and segments that hold the records.

docs/adr/0002-sql-journal.md says why. Records live in one table a segment, made by the journal
itself in the likeness of `journal.record`, which stays empty.
"""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    create_topics()
    create_partitions()
    create_segments()


def create_topics() -> None:
    op.execute(
        """
        CREATE TABLE journal.identity (
            id        uuid    NOT NULL DEFAULT gen_random_uuid(),
            singleton boolean NOT NULL DEFAULT true,
            CONSTRAINT pk_identity PRIMARY KEY (singleton),
            CONSTRAINT ck_identity_singleton CHECK (singleton)
        )
        """
    )
    op.execute("INSERT INTO journal.identity DEFAULT VALUES")
    op.execute(
        """
        CREATE TABLE journal.topic (
            id               bigint  GENERATED ALWAYS AS IDENTITY,
            name             text    COLLATE "C" NOT NULL,
            creation_id      uuid    NOT NULL DEFAULT gen_random_uuid(),
            retention_ms     bigint  NOT NULL,
            max_record_bytes integer NOT NULL,
            CONSTRAINT pk_topic PRIMARY KEY (id),
            CONSTRAINT uq_topic_name UNIQUE (name)
        )
        """
    )


def create_partitions() -> None:
    """The counter row is updated by every append: room on its page keeps these updates HOT."""
    op.execute(
        """
        CREATE TABLE journal.partition (
            id            bigint  GENERATED ALWAYS AS IDENTITY,
            topic_id      bigint  NOT NULL,
            number        integer NOT NULL,
            oldest        bigint  NOT NULL DEFAULT 0,
            next          bigint  NOT NULL DEFAULT 0,
            last_ms       bigint  NOT NULL DEFAULT 0,
            segment_start bigint,
            segment_bytes bigint  NOT NULL DEFAULT 0,
            CONSTRAINT pk_partition PRIMARY KEY (id),
            CONSTRAINT uq_partition_topic_id_number UNIQUE (topic_id, number),
            CONSTRAINT fk_partition_topic_id FOREIGN KEY (topic_id)
                REFERENCES journal.topic (id) ON DELETE CASCADE,
            CONSTRAINT ck_partition_bounds CHECK (0 <= oldest AND oldest <= next)
        ) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000,
                autovacuum_vacuum_scale_factor = 0)
        """
    )


def create_segments() -> None:
    """Bodies are compressed already, so the server stores them as they are."""
    op.execute(
        """
        CREATE TABLE journal.segment (
            partition_id bigint NOT NULL,
            first_offset bigint NOT NULL,
            first_ms     bigint NOT NULL,
            CONSTRAINT pk_segment PRIMARY KEY (partition_id, first_offset),
            CONSTRAINT fk_segment_partition_id FOREIGN KEY (partition_id)
                REFERENCES journal.partition (id) ON DELETE CASCADE
        )
        """
    )
    op.execute(
        """
        CREATE TABLE journal.record (
            "offset"  bigint NOT NULL,
            time_ms   bigint NOT NULL,
            append_id bigint NOT NULL,
            key       bytea,
            headers   bytea  NOT NULL,
            body      bytea  STORAGE EXTERNAL NOT NULL,
            CONSTRAINT pk_record PRIMARY KEY ("offset")
        )
        """
    )
