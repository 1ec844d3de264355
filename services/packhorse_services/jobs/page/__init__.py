"""Pages for people: queues, jobs and schedules, and what an operator may do with them."""
