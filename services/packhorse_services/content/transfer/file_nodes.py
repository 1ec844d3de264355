"""Files as nodes of the database, over HTTP as on the author's own."""

# Rows are taken in the order of their paths, so that two writers wait instead of dead-locking.
# Arrays go in binary form (%b): as text every quote of the JSON would be escaped.
WRITE_FILES = """
    INSERT INTO content.node AS node (path, type, properties, binaries)
    SELECT path, %s, '{}', binaries::jsonb
    FROM unnest(%b::text[], %b::text[]) AS given (path, binaries)
    ORDER BY path COLLATE "C"
    ON CONFLICT (path) DO UPDATE SET
        type = excluded.type,
        properties = CASE WHEN node.type = excluded.type THEN node.properties ELSE '{}' END,
        binaries = CASE WHEN node.type = excluded.type
            THEN node.binaries || excluded.binaries ELSE excluded.binaries END
"""
"""Takes the type, the paths, and as JSON what each is to hold of binaries.

What else a file's node holds by then stays, whatever it held when somebody looked.
"""
