"""The audit: each subscriber's content against the history, read without a lock (ADR 0022)."""
