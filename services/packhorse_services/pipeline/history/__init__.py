"""What the archive says the content was: packages to events, and events to content."""
