"""Folders into a repository and out of it."""
