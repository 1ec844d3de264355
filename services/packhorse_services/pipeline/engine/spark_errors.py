"""What Spark, Delta and Hadoop say when a task fails, in one line that says what to do."""

import importlib
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from packhorse.errors import PackhorseError, Permanent, Transient
from packhorse.messaging.api import JournalUnavailable, TopicMissing
from packhorse_services.pipeline import errors
from packhorse_services.pipeline.engine.databases import journal_away, unusable
from packhorse_services.pipeline.errors import (
    CheckpointCorrupt,
    HistoryGap,
    JarsMissing,
    JavaUnusable,
    Overtaken,
    SchemaChanged,
    TablesUnusable,
    TaskFailed,
    TaskRefused,
)

_OWN = re.compile(r"(packhorse(?:_services)?(?:\.\w+)+)\.(\w+): (.+)")
"""A packhorse error in the traceback of a Python worker or of a batch's function."""

_MAX_TEXT = 400
_TELLING = re.compile(r"(?:Exception|Error): |^\[[A-Z_.]+\] ", re.MULTILINE)

_Meaning = tuple[str, type[PackhorseError], str]

_MEANINGS: tuple[_Meaning, ...] = (
    (
        r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|"
        r"[Mm]ultiple streaming queries are concurrently",
        Overtaken,
        "another run of the same task is at work on this checkpoint; wait for it, or end it first",
    ),
    (
        r"[Dd]ata may have been lost|KAFKA_DATA_LOSS|OffsetOutOfRangeException|OffsetOutOfRange\b",
        HistoryGap,
        "the journal no longer holds records that were still to be read; run it again to see "
        "which, and with --accept-gap to go on without them",
    ),
    (
        r"MALFORMED_LOG_FILE|[Ll]og file was malformed|Failed to read log file|Incomplete log file|"
        r"STREAMING_CHECKPOINT|CHECKPOINT_METADATA|"
        r"batch \d+ doesn't exist|failed to read the .*checkpoint",
        CheckpointCorrupt,
        "a checkpoint can't be read, or belongs to other tables; run it with --new-checkpoint "
        "to go on from what the tables hold",
    ),
    (
        r"DELTA_(?:SCHEMA|FAILED_TO_MERGE|METADATA_MISMATCH|METADATA_CHANGED|"
        r"MISSING_(?:NOT_NULL_)?COLUMN)|A schema mismatch detected|"
        r"UNRESOLVED_COLUMN",
        SchemaChanged,
        "a table has other columns than this build knows; use the build that wrote it, or "
        "another PACKHORSE_TABLES_URL",
    ),
    (
        r"DELTA_VERSIONS_NOT_CONTIGUOUS|DELTA_VERSION_NOT_FOUND|DELTA_FILE_NOT_FOUND|"
        r"FAILED_READ_FILE|DELTA_LOG_FILE_NOT_FOUND|DELTA_TRUNCATED_TRANSACTION_LOG|"
        r"Failed to open local file.*No such file|Path does not exist '",
        TablesUnusable,
        "files of a table are gone; run it again (measures: with --all), which reads the newest "
        "version alone, and restore the files if it says the same",
    ),
    (
        r"Kernel error: Json error|Unsupported minimum (?:reader|writer) version|"
        r"No table (?:metadata|protocol)[\w ]* found in delta log|Expected contiguous commit files",
        TablesUnusable,
        "the log of a table is damaged, or another program's; restore the table, or use another "
        "PACKHORSE_TABLES_URL",
    ),
    (
        r"DELTA_TABLE_NOT_FOUND|DELTA_PATH_DOES_NOT_EXIST|PATH_NOT_FOUND|DELTA_MISSING_DELTA_TABLE|"
        r"is not a Delta table",
        TablesUnusable,
        "a table is not there; check PACKHORSE_TABLES_URL; packhorse-pipeline archive makes it",
    ),
    (
        r"NoSuchBucket|AccessDenied|Forbidden|NoAwsCredentials|Unable to load credentials|"
        r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessControlException|Permission denied",
        TablesUnusable,
        "the place of the tables refuses; check PACKHORSE_TABLES_URL, AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, and their rights",
    ),
    (
        r"NoSuchMethodError|ClassNotFoundException|NoClassDefFoundError|DATA_SOURCE_NOT_FOUND|"
        r"STREAMING_SOURCE_NOT_FOUND|Cannot find catalog plugin",
        JarsMissing,
        "Spark lacks a jar, or has another version of one; fetch them with packhorse-pipeline jars",
    ),
    (
        r"JAVA_GATEWAY_EXITED|Java gateway process exited",
        TaskRefused,
        "Spark could not start, and has said above why; check PACKHORSE_SPARK_MASTER, "
        "PACKHORSE_SPARK_CONF and PACKHORSE_SPARK_MEMORY",
    ),
    (
        r"UnsupportedClassVersionError",
        JavaUnusable,
        "Spark could not start; set JAVA_HOME to a Java of version 17 or 21",
    ),
    (
        r"OutOfMemoryError|Java heap space",
        TaskFailed,
        "Spark ran out of memory; raise PACKHORSE_SPARK_MEMORY",
    ),
    (r"No space left on device", TaskFailed, "a disk is full; make room and run it again"),
    (
        r"Failed to construct kafka|No resolvable bootstrap|TimeoutException|UnknownHostException|"
        r"Connection refused|ConnectException|Failed to create new KafkaAdminClient",
        TaskFailed,
        "a server can't be reached; check the URLs of the settings and run it again",
    ),
)


@contextmanager
def translated(task: str) -> Iterator[None]:
    """Turn what Spark raises into a packhorse error whose text is one line and names `task`.

    Errors that are packhorse's already, also those raised inside Spark's workers and batches,
    keep their text. What nobody foresaw becomes `TaskFailed` with Spark's own words.
    """
    _report_once()
    try:
        yield
    except (PySparkException, Py4JError, DeltaError, OSError, pa.ArrowException) as error:
        raise meaning(str(error), task) from error


def _report_once() -> None:
    """Keep PySpark and py4j from printing the exceptions that they hand on: we report them."""
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def meaning(said: str, task: str) -> PackhorseError:
    """Return the error that Spark's words stand for."""
    if own := _OWN.findall(said):
        return _own_error(*own[-1])
    for pattern, kind, text in _MEANINGS:
        if re.search(pattern, said):
            return kind(f"{task}: {text} ({_gist(said)})")
    return TaskFailed(f"{task} stopped and may be run again: {_gist(said)}")


def _own_error(module: str, name: str, text: str) -> PackhorseError:
    """Return the error that was raised elsewhere, or its kind where it needs more than a text."""
    kind, text = _kind(module, name), text.strip()
    if module == errors.__name__ and issubclass(kind, PackhorseError):
        return kind(text)
    if issubclass(kind, JournalUnavailable):
        return unusable(journal_away(text), text)
    if kind is TopicMissing:
        return TopicMissing(text)
    if issubclass(kind, Transient):
        return TaskFailed(text)
    if issubclass(kind, Permanent):
        return TaskRefused(text)
    return TaskFailed(f"{name}: {text}")


def _kind(module: str, name: str) -> type:
    """Return the class of this name; `object` where there is none, for it came out of a text."""
    try:
        kind = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return object
    return kind if isinstance(kind, type) else object


def _gist(said: str) -> str:
    """Return the line that says most: the innermost cause's, else the first one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ") or _TELLING.search(line)]
    line = causes[-1] if causes else (lines[0] if lines else "it gave no reason")
    return line.removeprefix("Caused by: ")[:_MAX_TEXT]
