"""What a terminal of 80 columns is given: every table whole, for it wraps what is too long."""

import os
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from packhorse_services.cli.client import views
from packhorse_services.cli.client.views import Format, View
from packhorse_services.cli.jobs import views as jobs

ROOT = Path(__file__).parents[3]
VIEWS = [one for module in (views, jobs) for one in vars(module).values() if isinstance(one, View)]


def long_text(field: str) -> str:
    return "61 s" if field.endswith(("_s", "lag_seconds")) else f"{'a long ' * 20}{field}"


def row(columns: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in columns.values():
        holder, _, name = field.rpartition(".")
        value: Any = 61 if long_text(field) == "61 s" else long_text(field)
        (found.setdefault(holder, {}) if holder else found)[name] = value
    return found


def show_all() -> None:
    for view in VIEWS:
        rows = [row({**view.columns, **view.wide})]
        view.show({**row(view.whole), view.rows: rows, "current": True}, Format.WIDE)


def test_a_terminal_is_given_every_column_whole() -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    program = f"from {__name__} import show_all; show_all()"
    shown = b""
    with subprocess.Popen([sys.executable, "-c", program], stdout=theirs, cwd=ROOT):
        os.close(theirs)
        try:
            while said := os.read(ours, 65_536):
                shown += said
        except OSError:  # the program has ended, and nobody else has the terminal
            os.close(ours)
    lines = [one for one in shown.decode().splitlines() if one]
    tables = [one for view in VIEWS for one in (view.whole, {**view.columns, **view.wide}) if one]
    assert len(lines) == 2 * len(tables)
    for titles, values, columns in zip(lines[::2], lines[1::2], tables, strict=True):
        assert all(title in titles for title in columns)
        assert all(long_text(field) in values for field in columns.values())


def test_no_line_ends_with_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    views.show_table({"A": "a", "B": "b"}, [{"a": "1", "b": "2"}, {"a": "1", "b": "long"}])
    assert capsys.readouterr().out == "A   B\n1   2\n1   long\n"
