"""The blob store that author and subscribers share. Start with `api`."""
