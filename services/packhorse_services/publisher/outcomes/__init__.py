"""What became of packages at subscribers, durably: error queues, deliveries, events (R9, R18)."""
