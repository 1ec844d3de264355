"""Logs: one line of JSON a record, whatever it holds."""

import json
import logging

import pytest

from packhorse.runtime import logs, tracing


def _lines(capfd: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    captured = capfd.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_extra_members_and_the_trace_are_in_the_line(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "INFO")
    with tracing.continued({}):
        logging.getLogger("a").info("imported", extra={"offset": 7, "paths": ("/a",)})
        expected = tracing.trace_id()
    [line] = _lines(capfd)
    assert line["event"] == "imported"
    assert line["offset"] == 7
    assert line["level"] == "info"
    assert line["logger"] == "a"
    assert line["trace_id"] == expected


def test_a_text_cannot_forge_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "INFO")
    logging.getLogger("a").info("x", extra={"path": '/a\n{"event":"forged"}\x1b[0m'})
    [line] = _lines(capfd)
    assert line["event"] == "x"


def test_a_pool_that_cannot_connect_is_told_once_for_a_while(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for _ in range(2):
        logs.configure("json", "INFO")
    for _ in range(20):
        logging.getLogger("psycopg.pool").warning("error connecting in %r: refused", "seen")
    logging.getLogger("psycopg").warning("error ignored terminating a pipeline")
    [line] = _lines(capfd)
    assert line["event"] == "the database can't be reached now: error connecting in 'seen': refused"


def test_what_json_cannot_hold_is_written_as_text(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "INFO")
    logging.getLogger("a").info("x", extra={"thing": object(), "text": "\ud800", "raw": b"\xff"})
    assert len(_lines(capfd)) == 1


def test_a_console_shows_an_exception_without_its_local_variables(
    capfd: pytest.CaptureFixture[str],
) -> None:
    logs.configure("console", "INFO")
    secret = "-".join(("top", "secret"))
    try:
        raise ValueError(f"why, in {len(secret)} letters")
    except ValueError:
        logging.getLogger("a").exception("failed")
    shown = capfd.readouterr().err
    assert "ValueError: why" in shown
    assert "top-secret" not in shown


def test_an_exception_stays_in_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "INFO")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("a").exception("failed")
    [line] = _lines(capfd)
    assert "ValueError: why" in str(line["exception"])


def test_uvicorn_speaks_through_the_same_configuration(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "INFO")
    logging.getLogger("uvicorn.error").info("hello %s", "x", extra={"color_message": "c"})
    [line] = _lines(capfd)
    assert line["event"] == "hello x"
    assert "color_message" not in line


def test_levels_are_kept(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "WARNING")
    logging.getLogger("a").info("quiet")
    assert _lines(capfd) == []


def test_the_console_is_for_people(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("console", "INFO")
    logging.getLogger("a").info("imported", extra={"offset": 7})
    assert "offset=7" in capfd.readouterr().err
