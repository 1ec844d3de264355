"""The lock that keeps the author's tree a tree, whoever writes at the same moment.

Who writes a node relies on the folders above it; a removal that does not see the new node yet
would leave it without them. So writers share a lock, and a removal has it alone.
"""

_LOCK = 0x74726565  # "tree"

SHAPE_KEPT = f"SELECT pg_advisory_xact_lock_shared({_LOCK})"
"""First statement of a transaction that writes nodes."""

SHAPE_CHANGED = f"SELECT pg_advisory_xact_lock({_LOCK})"
"""First statement of a transaction that removes nodes."""
