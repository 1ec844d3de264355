"""The HTTP service of a publisher: its routes, and what they work with."""
