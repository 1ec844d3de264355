"""Waiting for a condition, with a deadline: the only way that tests let time pass."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    look: Callable[[], T], *, timeout: float = 120.0, interval: float = 0.05, what: str = ""
) -> T:
    """Return the first true thing that `look` gives; fail with the last one after `timeout`.

    An `AssertionError` of `look` counts as not yet.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            seen: object = look()
        except AssertionError as error:
            seen = error
        else:
            if seen:
                return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what or look}; last seen: {seen!r}")
        time.sleep(interval)
