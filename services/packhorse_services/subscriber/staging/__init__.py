"""Imports only what another subscriber, the golden one, has imported."""
