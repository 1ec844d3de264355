"""Pages to look around in: content, records of the journal, and what happens now."""
