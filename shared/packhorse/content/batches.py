"""Much in batches that one statement, request or event takes."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def batches(
    items: Iterable[T], size_of: Callable[[T], int], *, most: int, most_size: int
) -> Iterator[list[T]]:
    """Yield the items in order, up to `most` and of up to `most_size` together.

    One that is larger by itself is alone.
    """
    batch: list[T] = []
    size = 0
    for item in items:
        its = size_of(item)
        if batch and (len(batch) == most or size + its > most_size):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += its
    if batch:
        yield batch
