"""The SQL journal: counters that give gapless offsets, and segments that hold the records.

docs/adr/0002-sql-journal.md says why. Records live in one table a segment, made by the journal
itself in the likeness of `journal.record`, which stays empty.
"""

from alembic import op

revision = "0002"
down_revision = "0001"

_APPENDER = """
    CREATE TABLE journal.appender (
        topic_id bigint NOT NULL,
        role     text   NOT NULL,
        CONSTRAINT pk_appender PRIMARY KEY (topic_id, role),
        CONSTRAINT fk_appender_topic_id FOREIGN KEY (topic_id)
            REFERENCES journal.topic (id) ON DELETE CASCADE
    )
"""
# A role that was dropped has a row here still, and pg_has_role would fail for its name.
_MAY_APPEND = """
    CREATE FUNCTION journal.may_append(topic bigint, login name) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
        SELECT EXISTS (
            SELECT FROM journal.appender a JOIN pg_roles r ON r.rolname = a.role
            WHERE a.topic_id = topic AND pg_has_role(login, r.oid, 'USAGE'))
    $$
"""
# The counter's newest version is this transaction's: it has moved the counter, and holds its lock.
# Readers are those of journal.record, the table that segments are made like.
_BEGIN_SEGMENT = """
    CREATE FUNCTION journal.begin_segment(partition bigint, start bigint, size bigint)
    RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        counter journal.partition;
        segment text := format('journal.%I', format('records_%s_%s', partition, start));
        readers text;
        appenders text;
    BEGIN
        SELECT p.* INTO counter FROM journal.partition p
        WHERE p.id = partition AND p.xmin = pg_current_xact_id()::xid;
        IF counter.id IS NULL OR NOT (
            pg_has_role(session_user, current_user, 'USAGE')
            OR journal.may_append(counter.topic_id, session_user)
        ) THEN
            RAISE insufficient_privilege USING MESSAGE =
                'a segment is begun by an append, of a login that may append to the topic';
        END IF;
        IF start < counter.oldest OR start >= counter.next OR start <= counter.segment_start THEN
            RAISE invalid_parameter_value USING MESSAGE =
                'a segment begins at an offset that this transaction has taken';
        END IF;
        UPDATE journal.partition p SET segment_start = start, segment_bytes = size
        WHERE p.id = partition;
        INSERT INTO journal.segment (partition_id, first_offset, first_ms)
        VALUES (partition, start, counter.last_ms);
        EXECUTE 'CREATE TABLE ' || segment || ' (LIKE journal.record INCLUDING ALL)';
        SELECT string_agg(quote_ident(r.rolname), ', ') INTO readers
        FROM pg_class c, aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
        WHERE c.oid = 'journal.record'::regclass AND a.privilege_type = 'SELECT'
            AND r.oid <> c.relowner;
        IF readers IS NOT NULL THEN
            EXECUTE 'GRANT SELECT ON ' || segment || ' TO ' || readers;
        END IF;
        SELECT string_agg(quote_ident(r.rolname), ', ') INTO appenders
        FROM journal.appender a JOIN pg_roles r ON r.rolname = a.role
        WHERE a.topic_id = counter.topic_id;
        IF appenders IS NOT NULL THEN
            EXECUTE 'GRANT INSERT ON ' || segment || ' TO ' || appenders;
        END IF;
    END $$
"""


def upgrade() -> None:
    create_topics()
    create_partitions()
    create_segments()
    share_with_logins()


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


def share_with_logins() -> None:
    """Logins can be let in that append to some topics only, or read (ADR 0054)."""
    op.execute(_APPENDER)
    op.execute(_MAY_APPEND)
    op.execute(_BEGIN_SEGMENT)
    op.execute("REVOKE ALL ON FUNCTION journal.may_append FROM PUBLIC")
    op.execute("REVOKE ALL ON FUNCTION journal.begin_segment FROM PUBLIC")
    op.execute("ALTER TABLE journal.partition ENABLE ROW LEVEL SECURITY")
    op.execute("CREATE POLICY read_all ON journal.partition FOR SELECT USING (true)")
    op.execute(
        "CREATE POLICY append ON journal.partition FOR UPDATE"
        " USING (journal.may_append(topic_id, current_user))"
    )
