"""The embedded stack: its Postgres, its programs, and `packhorse up`."""
