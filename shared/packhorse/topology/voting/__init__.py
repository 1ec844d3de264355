"""Membership by heartbeats and unanimous votings (the design of discovery.impl)."""
