"""What a subscriber tells: announcements, statuses, and whether it has caught up."""
