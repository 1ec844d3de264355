"""Requests that go out later: planned, changed, cancelled, and sent once by a job (ADR 0094)."""
