"""The journal in PostgreSQL: gapless offsets from counter rows, records in segment tables."""
