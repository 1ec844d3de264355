"""Upkeep of the tables: compacted, what has expired removed, files that nobody reads deleted."""
