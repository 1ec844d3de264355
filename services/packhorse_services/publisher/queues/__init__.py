"""Queues: one cache of the journal, and a view of it for each subscriber."""
