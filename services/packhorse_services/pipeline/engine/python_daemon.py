"""The process that Spark's Python workers are forked from; Spark starts it, once a kind of them.

It imports before the forks what they import: else each of them spends a second of the processor's
time on it, and half of one with Arrow's first array, which looks for pandas. Which PySpark that is,
`sitecustomize` decides.
"""

import gc
from importlib import import_module

_IMPORTED = (
    "pyspark.worker",
    "packhorse.wire.package_codec",
    "packhorse_services.pipeline.settings",
    "packhorse_services.pipeline.storage.parquet",
)


def prepare() -> None:
    """Import what workers need, and let none of it be collected.

    That begins no thread but those by which Arrow and delta-rs give memory back, and their
    allocators begin these anew in a fork. A worker collects garbage behind each task, and would
    look through all modules for it: 0.1 s.
    """
    for name in _IMPORTED:
        import_module(name)
    import_module("pyarrow").array([0])
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    prepare()
    manager()
