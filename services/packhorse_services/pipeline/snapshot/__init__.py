"""Snapshots of the content at an offset, made from the archive for subscribers to begin with."""
