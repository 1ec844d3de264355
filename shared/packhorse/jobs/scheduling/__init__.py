"""Schedules: fire times at which a job is added or an event is sent, once a cluster."""
