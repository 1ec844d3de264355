"""A streaming query's checkpoint, looked at before Spark does: what it has done, and whether whole.

Spark's own words for a damaged checkpoint are many; here they are one error with a way out.
"""

import json
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from packhorse_services.pipeline.errors import CheckpointCorrupt

_MAX_BYTES = 16 * 1024 * 1024


class CheckpointFolder:
    """A folder on whatever file system Spark reaches it by."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        context: Any = spark.sparkContext
        self.path = path
        self._jvm = jvm
        self._root = jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._root.getFileSystem(context._jsc.hadoopConfiguration())

    def names(self, below: str = "") -> list[str]:
        """Return the names of what is in a folder; nothing where there is none."""
        place = self._at(below)
        if not self._files.exists(place):
            return []
        return [found.getPath().getName() for found in self._files.listStatus(place)]

    def text(self, name: str) -> str:
        """Return a file's text. Raises `CheckpointCorrupt` when it can't be read."""
        place = self._at(name)
        try:
            if self._files.getFileStatus(place).getLen() > _MAX_BYTES:
                raise self.corrupt(name, "it is too large")
            stream = self._files.open(place)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Py4JError as error:
            raise self.corrupt(name, "it can't be read") from error

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        self._files.delete(self._root, True)

    def corrupt(self, name: str, why: str) -> CheckpointCorrupt:
        """Return the error for a damaged file, which tells the way out."""
        return CheckpointCorrupt(
            f"the checkpoint {self.path} is damaged ({name}: {why}); run it with --new-checkpoint "
            "to go on from what the tables hold"
        )

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """How far a query has come: its last finished batch, and what its source keeps of its end."""

    batch: int
    offset: Any


def progress_of(folder: CheckpointFolder) -> QueryProgress | None:
    """Return how far the query has come, or None when it has finished no batch.

    Raises `CheckpointCorrupt` when a file that Spark would read next is not whole.
    """
    names = folder.names()
    if "metadata" in names:
        _document(folder, "metadata", folder.text("metadata"))
    # In this order: each is planned before it is finished, also by who is at work meanwhile.
    finished, planned = _batches(folder, "commits"), _batches(folder, "offsets")
    for batch in planned[-2:]:
        offset_of(folder, batch)
    if not finished:
        return None
    if finished[-1] not in planned or "metadata" not in names:
        raise folder.corrupt("offsets", f"batch {finished[-1]} is not there")
    _versioned(folder, f"commits/{finished[-1]}")
    return QueryProgress(finished[-1], offset_of(folder, finished[-1]))


def _batches(folder: CheckpointFolder, log: str) -> list[int]:
    return sorted(int(name) for name in folder.names(log) if name.isdecimal())


def offset_of(folder: CheckpointFolder, batch: int) -> Any:
    """Return what the source keeps of a batch's end. Raises `CheckpointCorrupt`."""
    name = f"offsets/{batch}"
    lines = _versioned(folder, name)
    if len(lines) != 2:
        raise folder.corrupt(name, f"it tells of {len(lines) - 1} sources, not of one")
    return _document(folder, name, lines[1])


def _versioned(folder: CheckpointFolder, name: str) -> list[str]:
    """Return the lines below the version, the first of which is JSON."""
    version, *lines = folder.text(name).split("\n")
    if version != "v1" or not lines:
        raise folder.corrupt(name, "it is not as Spark writes it")
    _document(folder, name, lines[0])
    return lines


def _document(folder: CheckpointFolder, name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise folder.corrupt(name, "it is not whole") from error
