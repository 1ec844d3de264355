"""Each way to end is one line, true whenever it happens, and an exit code for who watches."""

import os
import sys
from contextvars import copy_context

import psycopg
import pytest
import stamina
from psycopg import errors
from sqlalchemy import exc

from packhorse.errors import PackhorseError, Transient
from packhorse.messaging.api import JournalUnavailable, TopicMissing
from packhorse.packages.build import PathMissing
from packhorse.runtime.configuration import InvalidConfiguration
from packhorse.runtime.startup import TYPED, typed
from packhorse_services.pipeline.__main__ import main
from packhorse_services.pipeline.bulk.cancelling import BulkCancelled, BulkStopped
from packhorse_services.pipeline.bulk.publisher_api import PublisherAway
from packhorse_services.pipeline.engine.databases import author_away, first_line, unusable
from packhorse_services.pipeline.engine.exit_codes import plain_ends, remember_typed
from packhorse_services.pipeline.engine.spark_errors import meaning
from packhorse_services.pipeline.errors import (
    Conflict,
    HistoryGap,
    NotThere,
    NotYet,
    Overtaken,
    TablesUnusable,
    TaskFailed,
    TaskRefused,
)

SAID = (
    'connection failed: connection to server at "127.0.0.1", port 5432 failed: FATAL:  password '
    'authentication failed for user "me"\nMultiple connection attempts failed. All failures were:'
    "\n- host: 'localhost'"
)
LINE = (
    'connection failed: connection to server at "127.0.0.1", port 5432 failed: FATAL: password '
    'authentication failed for user "me"'
)


def ended(error: Exception, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return the exit code and the one line that is printed."""
    with pytest.raises(SystemExit) as end, plain_ends():
        raise error
    (line,) = capsys.readouterr().err.splitlines()
    assert isinstance(end.value.code, int)
    return end.value.code, line


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TaskFailed("x"), 1),
        (BulkStopped("x"), 1),
        (PublisherAway("x"), 1),
        (Transient("x"), 1),
        (NotYet("x"), 1),
        (TaskRefused("x"), 2),
        (Overtaken("x"), 2),
        (HistoryGap("x"), 2),
        (TablesUnusable("x"), 2),
        (InvalidConfiguration("x"), 2),
        (NotThere("x"), 3),
        (PathMissing("x"), 3),
        (Conflict("x"), 4),
        (BulkCancelled("x"), 4),
    ],
    ids=lambda given: type(given).__name__,
)
def test_the_exit_code_says_what_to_do(
    error: PackhorseError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found, line = ended(error, capsys)
    assert found == code
    assert line.startswith("error: ")
    assert "start" not in line


@pytest.mark.parametrize(
    "said",
    [
        f"the journal's database says: {SAID}",
        *(f"{LINE}; {again}" for again in ("try again", "try again later", "poll again")),
    ],
)
def test_a_journal_that_is_away_is_one_line_with_its_setting(
    said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = JournalUnavailable(said)
    setting = "look at PACKHORSE_JOURNAL_URL, and run it again"
    wanted = f"error: the journal can't be used: {LINE}; {setting}"
    assert ended(error, capsys) == (1, wanted)


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError(SAID),
        exc.OperationalError(None, None, psycopg.OperationalError(SAID)),
    ],
    ids=["psycopg", "sqlalchemy"],
)
def test_a_database_that_is_away_is_one_line_with_its_setting(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = "look at PACKHORSE_DATABASE_URL, and run it again"
    wanted = f"error: the author's database can't be used: {LINE}; {setting}"
    assert ended(error, capsys) == (1, wanted)


NO_DATABASE = SAID.partition("FATAL:")[0] + 'FATAL:  database "typo" does not exist'


def test_a_right_that_is_missing_is_for_somebody_to_give(
    capsys: pytest.CaptureFixture[str],
) -> None:
    denied = errors.InsufficientPrivilege("permission denied for table node")
    code, line = ended(unusable(author_away(denied), denied), capsys)
    assert code == 2
    assert line == (
        "error: the author's database can't be used: permission denied for table node; look at "
        "PACKHORSE_DATABASE_URL: its user lacks a right; use the one that the services have there"
    )


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (errors.UndefinedColumn('column "x" does not exist'), 2),
        (errors.UndefinedObject('snapshot "1-2-3" does not exist'), 1),
        (errors.AdminShutdown("terminating connection"), 1),
    ],
    ids=["another build's", "a snapshot that ended", "away"],
)
def test_a_refusal_that_may_pass_may_be_run_again(
    said: psycopg.Error, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(unusable(author_away(said), said), capsys)[0] == code


def test_what_is_tried_again_writes_nothing_to_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["packhorse-pipeline", "--help"])
    stamina.instrumentation.set_on_retry_hooks(None)
    try:
        with pytest.raises(SystemExit):
            copy_context().run(main)
        assert stamina.instrumentation.get_on_retry_hooks() == ()
    finally:
        stamina.instrumentation.set_on_retry_hooks(None)


NO_ROLE = 'role "packhorse_bookkeeper" does not exist'


@pytest.mark.parametrize(
    ("error", "setting"),
    [
        (psycopg.OperationalError(NO_DATABASE), "DATABASE_URL"),
        (exc.OperationalError(None, None, psycopg.OperationalError(NO_DATABASE)), "DATABASE_URL"),
        (unusable(author_away(NO_DATABASE), NO_DATABASE), "DATABASE_URL"),
        (unusable(author_away(NO_ROLE), NO_ROLE), "DATABASE_URL"),
        (JournalUnavailable(f"the journal's database says: {NO_DATABASE}"), "JOURNAL_URL"),
        (
            JournalUnavailable(
                'the journal\'s database says: relation "journal.topic" does not exist'
            ),
            "JOURNAL_URL",
        ),
        (
            meaning(f"{JournalUnavailable.__module__}.JournalUnavailable: {NO_DATABASE}", "x"),
            "JOURNAL_URL",
        ),
    ],
    ids=[
        "psycopg",
        "sqlalchemy",
        "task",
        "no role of ours",
        "journal",
        "no journal",
        "journal by Spark",
    ],
)
def test_a_database_that_is_none_is_a_wrong_setting(
    error: Exception, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No later start finds it, other than a server that is away or refuses the login."""
    code, line = ended(error, capsys)
    assert (code, f"look at PACKHORSE_{setting}" in line) == (2, True), line


@pytest.mark.parametrize(
    ("url", "named"),
    [
        (
            "postgresql://you@db/author?sslmode=require",
            " (PACKHORSE_JOURNAL_URL names the author's",
        ),
        ("postgresql://db:5432/eu", " (PACKHORSE_JOURNAL_URL names the database of subscriber eu)"),
        ("postgresql://db:5433/author", "; set PACKHORSE_JOURNAL_URL to"),
        ("kafka://db:9092", "; set PACKHORSE_JOURNAL_URL to"),
        ("kafka://one:9092,two:9092", "; set PACKHORSE_JOURNAL_URL to"),
    ],
)
def test_a_journal_without_the_topic_is_reported_by_what_its_url_names(
    url: str, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PACKHORSE_JOURNAL_URL", url)
    monkeypatch.setenv("PACKHORSE_DATABASE_URL", "postgresql://me:s3cret@db/author")
    monkeypatch.setenv("PACKHORSE_SUBSCRIBER_DATABASES", '{"eu": "postgresql://me@db/eu"}')
    error = TopicMissing("topic x_package does not exist; create it with `packhorse topics create`")
    code, line = ended(error, capsys)
    assert code == 2
    assert line.startswith(f"error: topic x_package does not exist{named}"), line
    assert "only a new journal needs packhorse topics create" in line


def test_a_topic_that_was_there_is_reported_in_the_journals_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = "topic x was removed; look at its identity before reading it again"
    assert ended(TopicMissing(said), capsys) == (2, f"error: {said}")


@pytest.mark.parametrize(
    ("typed_as", "wanted"),
    [
        ("packhorse pipeline", "packhorse pipeline archive"),
        ("packhorse-pipeline", "packhorse-pipeline archive"),
        ("python -m packhorse_services.pipeline", "packhorse-pipeline archive"),
    ],
)
def test_advice_names_the_program_as_it_was_typed(
    typed_as: str, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    context = copy_context()
    context.run(remember_typed, typed_as)
    error = TaskRefused("nothing is there; run packhorse-pipeline archive first")
    code, line = context.run(ended, error, capsys)
    assert (code, line) == (2, f"error: nothing is there; run {wanted} first")


def test_a_url_that_is_none_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = ended(exc.ArgumentError("no URL: me:s3cret@host"), capsys)
    assert code == 2
    assert "PACKHORSE_DATABASE_URL" in line
    assert "s3cret" not in line


def test_an_error_of_this_program_itself_is_not_hidden() -> None:
    with pytest.raises(psycopg.ProgrammingError), plain_ends():
        raise psycopg.ProgrammingError("syntax error")


def test_what_says_nothing_is_empty() -> None:
    assert first_line(psycopg.OperationalError()) == ""


@pytest.mark.parametrize(
    ("started", "reported", "wanted"),
    [
        ("/opt/bin/packhorse-pipeline", "", "packhorse-pipeline"),
        ("/opt/x/submitted/program.py", "", "packhorse-pipeline"),
        ("/opt/x/pipeline/__main__.py", "", "python -m packhorse_services.pipeline"),
        ("/opt/x/pipeline/__main__.py", "packhorse pipeline", "packhorse pipeline"),
    ],
)
def test_usage_names_what_was_typed(
    started: str, reported: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    monkeypatch.setenv(TYPED, reported)
    assert typed("packhorse-pipeline", "packhorse_services.pipeline") == wanted
    assert TYPED not in os.environ, "the programs that it starts are typed by nobody"
