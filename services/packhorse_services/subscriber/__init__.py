"""The subscriber: imports packages into its own database, with their offset."""
