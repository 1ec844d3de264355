"""Each program reports the metrics that docs/metrics.md gives it, and none of another program.

Their labels are on that page too, and what to watch names no others.
"""

import json
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client import Counter, Gauge, Histogram

from packhorse.client.addresses import read_token
from packhorse.runtime import metrics
from tests.harness.command_line import Up, packhorse_program
from tests.harness.waiting import eventually

_DOCS = Path(__file__).parents[2] / "docs"
_ROW = re.compile(
    r"^\| `(packhorse_[a-z_]+)` \| (\w+) \|([a-z, ]+)\| ([a-z, ]+) \| (.+) \|$", re.MULTILINE
)
_WATCHED = re.compile(r"(packhorse_[a-z_]+)(?:\{([a-z]+)=)?")
_PROGRAMS = ("publisher", "content", "cleanup", "subscriber", "topology", "jobs", "console")


def rows() -> list[tuple[str, str, str, str, str]]:
    """Return name, kind, labels, programs and help of each metric on the page."""
    return _ROW.findall((_DOCS / "metrics.md").read_text())


def labels() -> dict[str, set[str]]:
    """Return the labels that the page gives to each metric."""
    return {name: set(re.findall(r"\w+", named)) for name, _, named, _, _ in rows()}


def documented(program: str) -> set[tuple[str, str]]:
    """Return name and help of the metrics that the page gives to a program."""
    return {(name, text) for name, _, _, programs, text in rows() if _has(programs, program)}


def _has(programs: str, program: str) -> bool:
    everyone, _, but = programs.partition(" but ")
    return program != but if everyone == "all" else program in programs.split(", ")


def test_the_page_has_the_labels_of_each_metric() -> None:
    made = [one for one in vars(metrics).values() if isinstance(one, Counter | Gauge | Histogram)]
    labels_of = {one.describe()[0].name: set(one._labelnames) for one in made}
    of_services = {n: own for n, own in labels_of.items() if "_pipeline_" not in n}
    page = {name.removesuffix("_total"): named for name, named in labels().items()}
    del page["packhorse_build_info"]  # what it says is no label to Prometheus' library
    assert of_services == page


def test_what_to_watch_is_there_with_the_labels_that_it_names() -> None:
    known = labels()
    watched = _WATCHED.findall((_DOCS / "operations" / "watching.md").read_text())
    assert watched
    for name, label in watched:
        assert name in known, name
        assert not label or label in known[name], (name, label)


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

    if program == "cleanup":  # when the last run ended is absent before there was one
        packhorse_program("cleanup", "run", data=up.data)
    eventually(lambda: reported() == documented(program), what=str(reported()))
    assert not re.search(r"^[a-z_]+_created\b", scraped[-1], re.MULTILINE)
