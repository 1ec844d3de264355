"""What Spark says becomes one line of the right kind."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from packhorse.errors import PackhorseError
from packhorse.messaging.api import TopicMissing
from packhorse_services.pipeline import errors
from packhorse_services.pipeline.engine.spark_errors import meaning, translated
from packhorse_services.pipeline.storage.delta import opened, prepare
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.tables import PACKAGES

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 1, in f
{raised}

=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (
            "packhorse_services.pipeline.errors.HistoryGap: a/0 lacks offsets 4 to 6",
            errors.HistoryGap,
            "a/0 lacks offsets 4 to 6",
        ),
        (
            "packhorse.blobs.api.BlobStoreUnavailable: the store is away",
            errors.TaskFailed,
            "the store is away",
        ),
        (
            "packhorse.messaging.api.TopicMissing: topic t does not exist",
            TopicMissing,
            "topic t does not exist",
        ),
        (
            "packhorse.messaging.api.JournalUnavailable: the journal's database says: no\nmore",
            errors.TaskFailed,
            "the journal can't be used: no; look at PACKHORSE_JOURNAL_URL, and run it again",
        ),
        (
            "packhorse.messaging.api.JournalUnavailable: offset 3 does not come; try again later",
            errors.TaskFailed,
            "the journal can't be used: offset 3 does not come; look at PACKHORSE_JOURNAL_URL, "
            "and run it again",
        ),
        ("packhorse.nothing.Strange: who knows", errors.TaskFailed, "Strange: who knows"),
    ],
)
def test_errors_of_our_own_keep_their_text(
    raised: str, kind: type[PackhorseError], text: str
) -> None:
    found = meaning(WORKER.format(raised=raised), "archive")
    assert (type(found), str(found)) == (kind, text)


@pytest.mark.parametrize(
    ("said", "kind", "advice"),
    [
        ("[CONCURRENT_STREAM_LOG_UPDATE] x", errors.Overtaken, "another run"),
        ("[CONCURRENT_QUERY] y", errors.Overtaken, "another run"),
        ("Some data may have been lost because", errors.HistoryGap, "--accept-gap"),
        ("Caused by: Log file was malformed: failed", errors.CheckpointCorrupt, "--new-checkpoint"),
        ("[DELTA_FILE_NOT_FOUND_DETAILED] z", errors.TablesUnusable, "restore the files"),
        ("[DELTA_SCHEMA_CHANGED] z", errors.SchemaChanged, "PACKHORSE_TABLES_URL"),
        ("java.lang.ClassNotFoundException: kafka", errors.JarsMissing, "packhorse-pipeline jars"),
        ("java.lang.UnsupportedClassVersionError", errors.JavaUnusable, "JAVA_HOME"),
        ("[JAVA_GATEWAY_EXITED] Java", errors.TaskRefused, "PACKHORSE_SPARK_MASTER"),
        ("AmazonS3Exception: NoSuchBucket", errors.TablesUnusable, "AWS_ACCESS_KEY_ID"),
        ("java.lang.OutOfMemoryError: Java heap space", errors.TaskFailed, "SPARK_MEMORY"),
        ("TimeoutException: describeTopics", errors.TaskFailed, "URLs of the settings"),
        ("something\nnew", errors.TaskFailed, "may be run again"),
        ("", errors.TaskFailed, "no reason"),
    ],
)
def test_sparks_words_become_one_line_with_advice(
    said: str, kind: type[PackhorseError], advice: str
) -> None:
    found = meaning(said, "archive")
    assert type(found) is kind
    assert advice in str(found)
    assert "archive" in str(found)
    assert "\n" not in str(found)


@pytest.mark.parametrize("task", ["archive", "at", "audit", "measures", "snapshot", "upkeep"])
def test_a_missing_file_s_advice_names_no_option_that_a_task_lacks(task: str) -> None:
    said = str(meaning("[FAILED_READ_FILE.FILE_NOT_EXIST] bronze/a.parquet", task))
    assert said.startswith(f"{task}: files of a table are gone; run it again")
    assert "--new-checkpoint" not in said


@pytest.mark.parametrize(
    "log",
    [
        b'{"broken',
        b'{"add": 1}',
        b'{"commitInfo": {}}',
        b'{"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}',
    ],
)
def test_a_damaged_table_is_for_an_operator(tmp_path: Path, log: bytes) -> None:
    location = Location.parse(tmp_path.as_uri())
    prepare(location)
    for file in (tmp_path / PACKAGES / "_delta_log").glob("*0.json"):
        file.write_bytes(log)
    with pytest.raises(errors.TablesUnusable, match="damaged, or another"), translated("upkeep"):
        opened(location, PACKAGES)


def test_the_edge_of_a_task() -> None:
    with pytest.raises(errors.TaskFailed, match="audit stopped"), translated("audit"):
        raise PySparkException("boom")
    with pytest.raises(ValueError, match="a bug"), translated("audit"):
        raise ValueError("a bug")
