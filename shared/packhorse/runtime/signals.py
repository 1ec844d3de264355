"""Hearing of signals in programs without an event loop."""

import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TO_END = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def set_by_signals(event: threading.Event) -> Iterator[None]:
    """Set `event` on the first of `TO_END` inside the block; the second ends the process.

    To be used by the main thread; raises `ValueError` elsewhere. A handler must not set an event
    itself: when the main thread is interrupted inside `event.wait`, it holds the lock that
    `event.set` needs, for ever.
    """
    heard: queue.SimpleQueue[bool] = queue.SimpleQueue()  # `put` may interrupt anything

    def handle(_number: int, _frame: FrameType | None) -> None:
        for number in TO_END:
            signal.signal(number, signal.SIG_DFL)
        heard.put(True)

    def report() -> None:
        if heard.get():
            event.set()

    reporting = threading.Thread(target=report, name="signals", daemon=True)
    before = {number: signal.signal(number, handle) for number in TO_END}
    reporting.start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        heard.put(False)
        reporting.join()
