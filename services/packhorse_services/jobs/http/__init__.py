"""The routes of the jobs service, the documents they take and give, and what they share."""
