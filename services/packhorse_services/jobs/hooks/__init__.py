"""Hooks: each change of watched content is told to somebody over HTTP, signed (ADR 0101)."""
