"""What others wrote does not steer a terminal: texts, tables, errors, console logs."""

import logging

import pytest

from packhorse.runtime import logs
from packhorse.runtime.plain_text import plain
from packhorse_services.cli.client import output
from packhorse_services.cli.client.views import QUEUES, Format

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202etxt\u2066\u2028\ud800"


def is_plain(text: str) -> bool:
    return all(letter.isprintable() or letter in "\n\t" for letter in text)


def test_a_text_keeps_its_letters_and_shows_the_rest() -> None:
    assert is_plain(plain(EVIL))
    assert plain("\x1b[2Jé\t日本\n") == "\\x1b[2Jé\t日本\n"


def test_a_console_log_and_its_traceback_are_plain(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("console", "INFO")
    try:
        raise ValueError(EVIL)
    except ValueError:
        logging.getLogger("a").exception(EVIL, extra={"path": EVIL, EVIL: [EVIL], "n": 3})
    said = capfd.readouterr().err
    assert is_plain(said), ascii(said)
    assert "Traceback" in said
    assert "\\x1b[2J" in said


def test_errors_lines_and_tables_are_plain(capfd: pytest.CaptureFixture[str]) -> None:
    output.complain(EVIL)
    output.report(EVIL)
    output.line(EVIL)
    row = {"subscriber": EVIL + "\nforged", "state": EVIL, "head": {"last_error": EVIL}}
    for form in (Format.TABLE, Format.WIDE, Format.NAME, Format.JSON):
        QUEUES.show({"queues": [row], "agent": "main"}, form)
    said = capfd.readouterr()
    assert is_plain(said.out), ascii(said.out)
    assert is_plain(said.err), ascii(said.err)
    assert "\nforged" not in said.out.split("{")[0]
