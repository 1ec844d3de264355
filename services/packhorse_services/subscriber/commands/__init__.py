"""Commands as a subscriber obeys them: followed, kept, done, told of."""
