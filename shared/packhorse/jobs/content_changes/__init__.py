"""Events of content: what was added, changed, removed or invalidated, for whoever watches it (R34).

An event is stored in the transaction of the change itself, at the author and at a subscriber, and
reaches every instance as other stored events do. Where nobody watches, nothing is stored.
"""
