"""How fast blobs go to an S3 server and come back, and what that costs this process.

    python -m tests.bench.blobs_s3 [MODULE …]

Packages of 1 to 100 KB, stored and read by some threads at a time as subscribers and the bulk
import do; then one of 10 MB and one of 200 MB. Prints one JSON line a measurement. Further
modules with an `open_s3` are measured beside packhorse's own, in turns, on the same server.
"""

import hashlib
import importlib
import os
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, process_time

from packhorse.blobs.api import BlobStore, binary_key, package_key
from tests.bench.reporting import emit
from tests.harness.s3 import ACCESS_KEY, SECRET_KEY, running_s3

_SMALL, _THREADS, _ROUNDS = 600, 8, 5
_MB = 1_000_000

Action = Callable[[BlobStore, int], int]
"""Does something in a round with the store; returns how many packages or bytes that were."""


def main() -> None:
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
    modules = sys.argv[1:] or ["packhorse.blobs.s3"]
    with running_s3() as server:
        opened = {m: importlib.import_module(m).open_s3(server.url(m)) for m in modules}
        for name, action in _actions().items():
            taken: dict[str, list[tuple[float, float]]] = {module: [] for module in modules}
            for number in range(_ROUNDS):
                for module, store in opened.items():
                    taken[module].append(_measured(action, store, number))
            for module, rounds in taken.items():
                _report(name, module, rounds)


def _actions() -> dict[str, Action]:
    return {
        "put_small": _put_small,
        "get_small": _get_small,
        "put_many_small": _put_many_small,
        "put_10_mb": lambda store, number: _put(store, f"ten-{number}", 10),
        "get_10_mb": lambda store, number: _get(store, f"ten-{number}"),
        "put_200_mb": lambda store, number: _put(store, f"large-{number}", 200),
        "get_200_mb": lambda store, number: _get(store, f"large-{number}"),
    }


def _measured(action: Action, store: BlobStore, number: int) -> tuple[float, float]:
    """Return how much a second, and how much a second of this process' processor time."""
    started, cpu = perf_counter(), process_time()
    done = action(store, number)
    return done / (perf_counter() - started), done / (process_time() - cpu)


def _report(name: str, module: str, rounds: list[tuple[float, float]]) -> None:
    rate, by_cpu = (statistics.median(column) for column in zip(*rounds, strict=True))
    unit, scale = ("blobs", 1) if "small" in name else ("MB", _MB)
    emit(f"{name}, {module}", rate / scale, f"{unit}/s", a_cpu_second=by_cpu / scale)


def _small(number: int) -> list[bytes]:
    chance = random.Random(number)
    return [chance.randbytes(chance.randint(1_000, 100_000)) for _ in range(_SMALL)]


def _key(number: int, index: int) -> str:
    return package_key(f"small-{number}-{index:04x}")


def _put_small(store: BlobStore, number: int) -> int:
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(
            lambda item: store.put(_key(number, item[0]), [item[1]]),
            enumerate(_small(number)),
        ):
            pass
    return _SMALL


def _get_small(store: BlobStore, number: int) -> int:
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(
            lambda index: sum(map(len, store.get(_key(number, index)))), range(_SMALL)
        ):
            pass
    return _SMALL


def _put_many_small(store: BlobStore, number: int) -> int:
    small = _small(1_000 + number)
    store.put_many({binary_key(hashlib.sha256(content).hexdigest()): content for content in small})
    return _SMALL


def _chunks(megabytes: int) -> Iterator[bytes]:
    chunk = random.Random(1).randbytes(250_000)
    for _ in range(megabytes * 4):
        yield chunk


def _put(store: BlobStore, name: str, megabytes: int) -> int:
    return store.put(package_key(f"{name}-00"), _chunks(megabytes)).length


def _get(store: BlobStore, name: str) -> int:
    return sum(map(len, store.get(package_key(f"{name}-00"))))


if __name__ == "__main__":
    main()
