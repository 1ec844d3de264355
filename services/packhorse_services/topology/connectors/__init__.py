"""Connectors: clusters tell each other over HTTP what they know of the topology."""
