"""The columns of the table of an audit."""

from pyspark.sql import types as t

from packhorse_services.pipeline.storage import columns as c

FINDINGS = t.StructType(
    [
        c.text("subscriber", "Name of the subscriber"),
        c.text("path", "Path of the node"),
        c.text("kind", "What is wrong: missing, extra, different or undecided"),
        c.column(
            "offset",
            t.LongType(),
            "Offset of the package that should have put or removed it, or of the snapshot that "
            "holds it; null when there is none",
            nullable=True,
        ),
        c.column("package_id", t.StringType(), "Id of that package; empty for none", nullable=True),
    ]
)
"""A row for each path at which a subscriber is not as it should be."""
