"""Tables of the bookkeeping schema that more than one service reads or writes.

Each service names only its own tables in its SQL; what it wants of another's is a function here.
All functions run in the caller's transaction, as the bookkeeper. Each table has one owner, whose
migrations and promises it follows; `tests/contract/test_bookkeeping.py` holds both sides together.
"""
