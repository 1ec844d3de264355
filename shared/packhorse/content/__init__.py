"""The content repository: a tree of nodes in Postgres."""
