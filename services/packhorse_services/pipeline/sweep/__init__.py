"""Mark and sweep: binaries that nobody refers to leave the blob store (R22, ADR 0021)."""
