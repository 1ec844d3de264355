"""Bulk distribution: one subtree, exported in parallel from one snapshot, as many packages."""
