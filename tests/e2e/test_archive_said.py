"""What one run of the archive says at its end: what it has done, or which setting is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from tests.harness.archive import everything_in, fill
from tests.harness.journals import fresh_name
from tests.harness.spark import spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        **spark_environment(),
        "PACKHORSE_JOURNAL_URL": database_url,
        "PACKHORSE_BLOBS_URL": str(tmp_path / "blobs"),
        "PACKHORSE_TABLES_URL": str(tmp_path / "tables"),
        "PACKHORSE_TOPIC_PREFIX": fresh_name(),
    }


def archive(settings: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "packhorse_services.pipeline", "archive", *options),
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )


@pytest.mark.depth
def test_it_says_how_much_it_has_archived_and_then_that_nothing_was_waiting(
    settings: dict[str, str],
) -> None:
    topics = Topics.named(settings["PACKHORSE_TOPIC_PREFIX"], {})
    journal = open_journal(settings["PACKHORSE_JOURNAL_URL"], client_name="tests")
    try:
        fill(journal, topics, range(3))
        count = len(everything_in(journal, topics))
    finally:
        journal.close()
    place = settings["PACKHORSE_TABLES_URL"]
    done = archive(settings, "--max-offsets", str(count - 1))
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line == f"archived and decoded {count} records in 2 batches, to {place}"
    again = archive(settings)
    assert again.returncode == 0, again.stderr
    assert again.stdout == f"nothing was waiting; the archive at {place} is up to date\n"


@pytest.mark.depth
def test_a_journal_that_can_not_be_used_is_a_line_that_names_its_setting(
    settings: dict[str, str],
) -> None:
    url = make_url(settings["PACKHORSE_JOURNAL_URL"]).set(password="s3cret")
    text = url.render_as_string(hide_password=False)
    done = archive({**settings, "PACKHORSE_JOURNAL_URL": text})
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: the journal can't be used: ")
    assert last.endswith("; look at PACKHORSE_JOURNAL_URL, and run it again")
    assert "password authentication failed" in last
    assert "s3cret" not in done.stderr
