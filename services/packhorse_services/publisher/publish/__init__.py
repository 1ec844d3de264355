"""From requests to packages in the outbox: gathered, exported, numbered (R5, R6)."""
