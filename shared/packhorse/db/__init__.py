"""Postgres: connections, transactions and the one schema history of every database."""
