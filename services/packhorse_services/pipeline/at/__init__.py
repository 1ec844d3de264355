"""The content of a subtree as it was at a point of the history: to be shown, or put back."""
