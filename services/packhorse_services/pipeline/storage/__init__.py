"""The Delta tables: where they are, what they are called, what they hold, how files get in."""
