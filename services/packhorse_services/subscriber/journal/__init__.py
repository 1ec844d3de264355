"""Packages as the journal has them: read, numbered, and how far this database is."""
