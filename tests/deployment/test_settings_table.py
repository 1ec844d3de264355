"""docs/deployment.md names every setting, for the programs that have it, and none besides."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from packhorse.wire.topics import Topics

_PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"
_ROW = re.compile(r"^\| (`[^|]*`) \| ([^|]*) \|", re.MULTILINE)
_NO_LOG_NO_BLOBS = {"journal_url", "blobs_url"}
_UNUSED = {
    "content": {"journal_url"},
    "topology": _NO_LOG_NO_BLOBS,
    "jobs": _NO_LOG_NO_BLOBS,
    "console": {
        *_NO_LOG_NO_BLOBS,
        "topic_prefix",
        *(f"topic_{part}" for part in Topics().by_part()),
    },
}
_SERVICES = (
    "publisher",
    "content",
    "subscriber",
    "cleanup",
    "topology",
    "jobs",
    "console",
    "pipeline",
)


def documented(service: str) -> set[str]:
    """Return the settings that the table gives to a service."""
    found: set[str] = set()
    for names, programs in _ROW.findall(_PAGE.read_text()):
        everyone, _, but = programs.partition(" but ")
        has = (
            service not in but.split(", ") if everyone == "all" else service in programs.split(", ")
        )
        if has:
            found |= {name.lower() for name in re.findall(r"`PACKHORSE_([A-Z0-9_]+)`", names)}
    return found


@pytest.mark.parametrize("service", _SERVICES)
def test_the_table_has_every_setting_of_a_program_and_no_other(service: str) -> None:
    fields = set(import_module(f"packhorse_services.{service}.settings").Settings.model_fields)
    twins = {f"{name}_file" for name in fields}
    assert fields - twins == (documented(service) | _UNUSED.get(service, set()))
