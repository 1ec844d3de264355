"""Packages: building them from a tree, carrying them, applying them to a tree."""
