"""The jobs service: jobs, their queues, schedules and events, over HTTP and as a page."""
