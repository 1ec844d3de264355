"""Snapshots: the whole content at one offset, as files that a subscriber loads (R13)."""
