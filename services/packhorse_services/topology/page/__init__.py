"""Pages for people: read-only, rendered here, live without an API token in any script."""
