"""The journal: persisted, ordered topics of bytes and headers. Start with `api`."""
