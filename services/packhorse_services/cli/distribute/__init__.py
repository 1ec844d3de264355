"""`packhorse distribute`, of paths or of a file of requests."""
