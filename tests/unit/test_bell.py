"""What wakes a thread that waits for hints of its database."""

import threading

from packhorse.db.bell import Bell


def test_a_ring_ends_the_wait_under_way_or_the_next_one() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.wait(3600)
    assert not bell.wait(0), "several are heard as one"
    heard: list[bool] = []
    waiting = threading.Thread(target=lambda: heard.append(bell.wait(3600)), daemon=True)
    waiting.start()
    bell.ring()
    waiting.join(120)
    assert heard == [True]
    bell.close()
    bell.ring()


class RungAfterTheLook(threading.Event):
    """Somebody rings right after the waiting thread has looked for the second time."""

    looks = 0

    def is_set(self) -> bool:
        found = super().is_set()
        self.looks += 1
        if self.looks == 2:
            self.set()
        return found


def test_a_ring_at_the_end_of_a_wait_is_not_lost() -> None:
    bell = Bell()
    bell._rung = RungAfterTheLook()
    assert not bell.wait(0)
    assert bell.wait(3600)
    bell.close()
