"""Membership by leases in the cluster's Postgres: the default store (discovery-lite)."""
