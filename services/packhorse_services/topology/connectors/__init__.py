"""Connectors: clusters exchange over HTTP what they know of the topology."""
