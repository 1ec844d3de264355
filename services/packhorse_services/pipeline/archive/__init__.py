"""The archive: every record of the journal, exactly once, as Delta tables."""
