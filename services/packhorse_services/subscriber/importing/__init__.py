"""One subscription: from its records to the import transaction."""
