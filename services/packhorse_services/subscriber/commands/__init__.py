"""Commands at a subscriber: followed, stored, applied, reported."""
