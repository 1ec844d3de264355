"""`packhorse demo`: real content to three subscribers, and the check of it."""
