"""What every page has: the frame, looks of states, who visits, and equivalents of what it does."""
