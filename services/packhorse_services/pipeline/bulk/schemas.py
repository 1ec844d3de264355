"""The columns of the table of a bulk distribution."""

from pyspark.sql import types as t

from packhorse_services.pipeline.storage import columns as c

BULK_PARTS = t.StructType(
    [
        c.integer("part", "Number of the part, in the order of paths"),
        c.text("deep_path", "Path that is distributed with all that lies below it"),
        c.text("range_from", "First path that may be in the part; empty for the first"),
        c.text("range_to", "Path before which the part ends; empty for the last"),
        c.text("package_id", "Id of the package"),
        c.text("body_sha256", "SHA-256 of the body as stored, hexadecimal"),
        c.long("body_length", "Length of the body as stored, compressed", c.BYTES),
        c.long("content_length", "Length of the body once decompressed", c.BYTES),
        c.long("node_count", "Nodes in the body", "nodes"),
        c.integer("part_count", "Number of all parts", "parts"),
        c.long("seen_epoch", "Epoch of the last package before the snapshot"),
        c.long("seen_sequence", "Sequence of the last package before the snapshot"),
        c.long("snapshot_ms", "When the author's database was read, by its clock", c.EPOCH_MS),
    ]
)
"""The stored packages of one bulk distribution, all of one snapshot."""
