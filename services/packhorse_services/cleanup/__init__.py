"""The cleanup service: removes stored packages that the log has forgotten."""
