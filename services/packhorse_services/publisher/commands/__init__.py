"""Commands to subscribers: kept before they are sent, and what became of each (R19)."""
