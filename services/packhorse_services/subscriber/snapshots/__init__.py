"""Beginning with a snapshot.

The whole content and every subscription's position, in one transaction.
"""
