"""Puts a publisher together from its settings."""
