"""The SQL journal can be shared with logins that append to some topics only, or read.

docs/adr/0054-roles-of-the-sql-journal.md says why. What the migration makes belongs to the owner
of the journal's tables, who is not bound by row level security.
"""

from alembic import op

revision = "0020"
down_revision = "0019"

_AS_OWNER = """
    DO $$ BEGIN EXECUTE format('SET LOCAL ROLE %I', (
        SELECT tableowner FROM pg_tables WHERE schemaname = 'journal' AND tablename = 'partition'
    )); END $$
"""
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
    op.execute(_AS_OWNER)
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
    op.execute("RESET ROLE")
