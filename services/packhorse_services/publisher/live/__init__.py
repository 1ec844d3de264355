"""Live events of one publisher agent: what `GET /events` streams."""
