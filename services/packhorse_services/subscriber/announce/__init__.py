"""What a subscriber reports: announcements, statuses, and whether it has caught up."""
