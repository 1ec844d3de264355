"""The process that Spark's Python workers are forked from; Spark starts it, once a kind of them.

Spark puts three archives first in the path of modules: PySpark's source, Py4J's, and its own
classes. Of modules in an archive no bytecode is kept, and who looks for modules reads the lists of
all three: a start takes 1.4 s of the processor's time in place of 0.3, and each worker 0.3 s more.
Here the PySpark that is installed is used, where there is one.

Of what workers import, this imports before the forks what begins no thread.
"""

import re
import sys
from importlib.util import find_spec

_ARCHIVES = re.compile(r"/(?:pyspark\.zip|py4j-[^/]*-src\.zip|spark-core_[^/]*\.jar)$")


def leave_archives() -> None:
    """Take Spark's archives out of the path of modules, unless PySpark is in them alone."""
    before = list(sys.path)
    sys.path[:] = [place for place in before if not _ARCHIVES.search(place)]
    if find_spec("pyspark") is None:
        sys.path[:] = before
        return
    for place in set(before) - set(sys.path):
        sys.path_importer_cache.pop(place, None)


if __name__ == "__main__":
    leave_archives()

    import pyspark.worker  # noqa: F401 - for the workers
    from pyspark.daemon import manager

    manager()
