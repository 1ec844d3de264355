"""How many jobs an instance may begin now: places in all, and of each queue."""

from collections import Counter
from collections.abc import Iterable


class Slots:
    """Places of one instance; used by one thread.

    An attempt that has ended keeps its place until its thread has returned.
    """

    def __init__(self, places: int, cores: int) -> None:
        """Take how many attempts may be under way at a time, and what -1 means for a queue."""
        self._places, self._cores = places, max(1, cores)
        self._taken: Counter[str] = Counter()

    def take(self, queue: str) -> None:
        """Take a place, also where none is free."""
        self._taken[queue] += 1

    def give_back(self, queue: str) -> None:
        """Let another one have it."""
        self._taken[queue] -= 1
        if not self._taken[queue]:
            del self._taken[queue]

    def without(self, queues: Iterable[str]) -> "Slots":
        """Return places as they will be once one of each of these queues is given back."""
        made = Slots(self._places, self._cores)
        made._taken = self._taken - Counter(queues)
        return made

    def taken(self) -> dict[str, int]:
        """Return how many places of each queue are taken."""
        return dict(self._taken)

    def free(self) -> int:
        """Return how many places are free, whatever the queue."""
        return max(0, self._places - self._taken.total())

    def free_of(self, queue: str, max_parallel: int) -> int:
        """Return how many jobs of a queue may be begun, as far as there are places at all."""
        most = self._cores if max_parallel < 0 else max_parallel
        return max(0, min(self.free(), most - self._taken[queue]))
