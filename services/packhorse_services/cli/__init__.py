"""The `packhorse` command."""
