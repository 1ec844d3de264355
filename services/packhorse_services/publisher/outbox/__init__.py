"""What is committed at the author with each package, and its way into the journal (R5, R26)."""
