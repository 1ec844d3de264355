"""Topology: which instances are alive, in which clusters, in what order, and who leads."""
