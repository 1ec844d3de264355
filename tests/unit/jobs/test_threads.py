"""Threads are used again, and as many there are as work is under way."""

import threading

from packhorse.jobs.work.threads import Threads
from tests.harness.waiting import eventually


def names(prefix: str) -> set[str]:
    return {one.name for one in threading.enumerate() if one.name.startswith(prefix)}


def test_everything_runs_at_once_and_threads_are_used_again() -> None:
    threads, together = Threads("crowd"), threading.Barrier(5)
    for _ in range(3):
        for _ in range(4):
            threads.run(lambda: together.wait(120) and None)
        together.wait(120)
        eventually(lambda: threads._idle == 4, what="all wait for work")
    assert names("crowd-") == {f"crowd-{number}" for number in range(1, 5)}


def test_idle_threads_end_and_no_work_is_forgotten() -> None:
    threads, done = Threads("brief", idle_s=0.001), threading.Semaphore(0)
    for _ in range(300):
        threads.run(done.release)
        assert done.acquire(timeout=120)
    eventually(lambda: not names("brief-"), what="they have ended")
    assert threads._idle == 0


def test_work_that_hangs_keeps_nothing_else_waiting() -> None:
    threads, end, done = Threads("stuck"), threading.Event(), threading.Event()
    threads.run(lambda: end.wait(120) and None)
    threads.run(done.set)
    assert done.wait(120)
    end.set()
