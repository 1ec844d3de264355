"""The channels of NOTIFY for jobs, events and schedules."""

JOBS = "packhorse_jobs"
"""There are jobs to do, or queues have changed."""
EVENTS = "packhorse_events"
"""There are events to read."""
SCHEDULES = "packhorse_schedules"
"""There are schedules to plan."""
