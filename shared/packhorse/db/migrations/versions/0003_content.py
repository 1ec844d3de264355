"""The content repository: one table of nodes, and a hash over any part of the tree.

Paths compare by bytes, so a subtree is a range of the primary key (R29).
"""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE content.node (
            path       text  COLLATE "C" NOT NULL,
            type       text  NOT NULL,
            properties jsonb NOT NULL,
            binaries   jsonb NOT NULL,
            CONSTRAINT pk_node PRIMARY KEY (path),
            CONSTRAINT ck_node_path CHECK (starts_with(path, '/') AND octet_length(path) <= 2048),
            CONSTRAINT ck_node_properties CHECK (jsonb_typeof(properties) = 'object'),
            CONSTRAINT ck_node_binaries CHECK (jsonb_typeof(binaries) = 'object')
        )
        """
    )
    op.execute("GRANT SELECT ON content.node TO packhorse_exporter, packhorse_importer")
    op.execute("GRANT INSERT, UPDATE, DELETE ON content.node TO packhorse_importer")
    choose_compression()
    create_digests()
    create_merge_patch()


def choose_compression() -> None:
    """lz4 where the server was built with it; else none, for pglz costs more than the disk."""
    op.execute(
        """
        DO $$ BEGIN
            ALTER TABLE content.node ALTER properties SET COMPRESSION lz4;
        EXCEPTION WHEN feature_not_supported THEN
            ALTER TABLE content.node ALTER properties SET STORAGE EXTERNAL;
        END $$
        """
    )


def create_digests() -> None:
    """A node's digest is its ETag; a chain of them is the hash of a tree, in constant memory."""
    op.execute(
        """
        CREATE FUNCTION content.digest(type text, properties jsonb, binaries jsonb) RETURNS text
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
        RETURN encode(sha256(convert_to(
            type || chr(10) || properties::text || chr(10) || binaries::text, 'UTF8')), 'hex')
        """
    )
    op.execute(
        """
        CREATE FUNCTION content.chain_link(chain bytea, link text) RETURNS bytea
        LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS
        $$ BEGIN RETURN sha256(chain || convert_to(link, 'UTF8')); END $$
        """
    )
    op.execute(
        """
        CREATE AGGREGATE content.chain(text) (
            SFUNC = content.chain_link, STYPE = bytea, INITCOND = '\\x', PARALLEL = SAFE)
        """
    )


def create_merge_patch() -> None:
    """RFC 7396 in the database, where numbers keep every digit that was written."""
    op.execute(
        """
        CREATE FUNCTION content.merge_patch(target jsonb, patch jsonb) RETURNS jsonb
        LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
        DECLARE base jsonb := CASE jsonb_typeof(target) WHEN 'object' THEN target ELSE '{}' END;
        BEGIN
            IF jsonb_typeof(patch) <> 'object' THEN RETURN patch; END IF;
            RETURN (
                SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM (
                    SELECT key, value FROM jsonb_each(base) WHERE NOT patch ? key
                    UNION ALL
                    SELECT key, content.merge_patch(base -> key, value) FROM jsonb_each(patch)
                    WHERE jsonb_typeof(value) <> 'null'
                ) AS merged);
        END $$
        """
    )
