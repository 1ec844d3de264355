"""Pages for people: what waits where, why, and what an operator may do about it."""
