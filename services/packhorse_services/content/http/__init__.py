"""Nodes and files over HTTP."""
