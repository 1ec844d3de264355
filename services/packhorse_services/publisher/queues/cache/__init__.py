"""The one copy of its packages that a publisher keeps, in columns (R17)."""
