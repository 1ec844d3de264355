"""A node's hash: 60 bits of the SHA-256 of path, type, properties and binaries, each on a line."""

import hashlib

from pyspark.sql import Column
from pyspark.sql import functions as f

_DIGITS = 15


def hash_of(path: str, node_type: str, properties: str, binaries: str) -> int:
    """Return a node's hash, a number below 2 to the 60; `binaries` as Postgres writes them."""
    text = f"{path}\n{node_type}\n{properties}\n{binaries}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:_DIGITS], 16)


def node_hash(*columns: str | Column) -> Column:
    """Return the same of columns: path, type, properties, binaries."""
    text = f.concat_ws("\n", *columns)
    digits = f.substring(f.sha2(text.cast("binary"), 256), 1, _DIGITS)
    return f.conv(digits, 16, 10).cast("long")
