"""What became of what was asked for: one distribution, and lists of them."""
