"""Run by each Python that Spark starts in a local run, which has this folder in its path.

Spark puts three archives first in the path of modules: PySpark's source, Py4J's, and its own
classes. Of modules in an archive no bytecode is kept, and who looks for modules reads the lists of
all three: a start takes 1.4 s of the processor's time in place of 0.3, and each worker 0.3 s more.
Here the PySpark that is installed is used, where there is one. An operator's `sitecustomize` is run
as well.
"""

import re
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

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


if __name__ == "sitecustomize":
    own = sys.modules.pop(__name__)
    sys.path.remove(str(Path(__file__).parent))
    leave_archives()
    with suppress(ModuleNotFoundError):
        import_module(__name__)
    sys.modules.setdefault(__name__, own)
