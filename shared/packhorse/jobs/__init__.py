"""Distributed events, jobs that exactly one instance does, and schedules."""
