"""Stores in memory, builders and the simulator of the topology's tests."""
