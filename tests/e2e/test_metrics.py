"""Each program reports the metrics that docs/metrics.md gives it, and none of another program."""

import json
import re
from pathlib import Path

import httpx
import pytest

from packhorse.client.addresses import read_token
from tests.harness.command_line import Up
from tests.harness.waiting import eventually

_PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `(packhorse_[a-z_]+)` \| (\w+) \| ([a-z, ]+) \| (.+) \|$", re.MULTILINE)
_PROGRAMS = ("publisher", "content", "cleanup", "subscriber", "topology", "jobs", "console")


def documented(program: str) -> set[tuple[str, str]]:
    """Return name and help of the metrics that the page gives to a program."""
    return {
        (name, text)
        for name, _, programs, text in _ROW.findall(_PAGE.read_text())
        if _has(programs, program)
    }


def _has(programs: str, program: str) -> bool:
    everyone, _, but = programs.partition(" but ")
    return program != but if everyone == "all" else program in programs.split(", ")


@pytest.mark.parametrize("program", _PROGRAMS)
def test_a_program_reports_what_it_knows(up: Up, program: str) -> None:
    running = json.loads((up.data / "running.json").read_text())
    url = running["subscribers"]["sub1"] if program == "subscriber" else running[program]
    token = read_token(Path(running["token_file"]))
    scraped: list[str] = []

    def reported() -> set[tuple[str, str]]:
        headers = {"Authorization": f"Bearer {token}"}
        scraped.append(httpx.get(f"{url}/metrics", headers=headers, timeout=120).text)
        found = re.findall(r"^# HELP (packhorse_[a-z_]+) (.+)$", scraped[-1], re.MULTILINE)
        return {(name, text) for name, text in found}

    # When the last cleanup ended is read from the database, and absent before there was one.
    eventually(lambda: reported() == documented(program), what=str(reported()))
    assert not re.search(r"^[a-z_]+_created\b", scraped[-1], re.MULTILINE)
