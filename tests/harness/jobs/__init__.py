"""Builders, workloads and real processes of the tests of jobs."""
