"""The services over HTTP, as a program of one's own asks them: `Client` and `AsyncClient`.

What a call sends and what it makes of the answer is written once, as an `Operation` (`exchange`)
without I/O; `blocking` and `awaiting` are the two shells that send it.
"""
