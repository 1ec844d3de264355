"""`packhorse up` with a journal or blobs that can't be used: refused before anything runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.command_line import data_folder, packhorse, packhorse_program

DATABASE_URL = "error: --journal: a database's URL is postgresql://user:password@host:port/database"
NO_DATABASE = "error: --journal: the database can't be used: connection failed"
REFUSED = {
    ("--journal", "nonsense"): "error: --journal: no journal has URLs of the kind 'nonsense'",
    ("--journal", "memory://x"): "error: --journal: memory:// lives in one process",
    ("--journal", "kafka://user:pw@h"): "error: --journal: a Kafka URL is kafka://host:port",
    ("--journal", "kafka://h:1?foo=1"): "error: --journal: librdkafka refuses a setting",
    ("--journal", "postgresql://u:secret@h:port/x"): DATABASE_URL,
    ("--journal", "postgresql://u:secret@h:99999/x"): DATABASE_URL,
    ("--journal", "postgresql://u:secret@h/x?nonsense=1"): DATABASE_URL,
    ("--blobs", "ftp://host/x"): "error: --blobs: ftp://… is no blob store; use a folder or s3://",
    ("--blobs", "s3://b?zone=1"): "error: --blobs: an S3 blob store has no option 'zone'",
    (
        "--blobs",
        "s3://b?endpoint=http://u:secret@127.0.0.1:1&allow_http=true",
    ): "error: --blobs: leave the user out of the S3 endpoint",
    ("--blobs", "/dev/null"): "error: --blobs: the blob folder fails",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with data_folder() as folder:
        yield folder


@pytest.mark.parametrize(("option", "value"), REFUSED)
def test_a_bad_one_is_refused_in_one_line_and_nothing_is_made(
    folder: Path, option: str, value: str
) -> None:
    data = folder / "data"
    # Kafka's library would write to our own output.
    begun = packhorse_program if value.startswith("kafka:") else packhorse
    refused = begun("up", "--data", str(data), "--port", "0", option, value, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(REFUSED[option, value])
    assert refused.stderr.count("\n") == 1
    assert "secret" not in refused.stderr
    assert not data.exists()


@pytest.mark.parametrize(
    ("option", "value", "reported"),
    [
        ("--journal", "postgresql://127.0.0.1:1/x", NO_DATABASE),
        ("--journal", "kafka://127.0.0.1:1", "error: --journal: Kafka did not answer"),
        (
            "--blobs",
            "s3://b?endpoint=http://127.0.0.1:1&allow_http=true",
            "error: --blobs: the S3 store fails",
        ),
    ],
)
def test_one_that_does_not_answer_is_reported_and_nothing_is_made(
    folder: Path, option: str, value: str, reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    data = folder / "data"
    refused = packhorse_program(
        "up", "--data", str(data), "--port", "0", option, value, check=False
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(reported)
    assert refused.stderr.count("\n") == 1
    assert not data.exists()


@pytest.mark.parametrize("verb", ["create", "check"])
def test_topics_refuse_a_bad_journal_too(verb: str) -> None:
    refused = packhorse("topics", verb, "--journal", "postgresql://u:secret@h:port/x", check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(DATABASE_URL)
    assert "secret" not in refused.stderr
