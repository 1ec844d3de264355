"""The OpenAPI documents of the services: `python -m tests.harness.openapi` writes `openapi/`."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from fastapi import FastAPI

from packhorse.blobs.open import open_blobs
from packhorse.clock import SystemClock
from packhorse.messaging.open import open_journal
from packhorse.runtime.auth import Authenticator
from packhorse_services.content.app import create as content
from packhorse_services.publisher.app import Backends, publisher
from packhorse_services.publisher.settings import Settings as PublisherSettings

FOLDER = Path(__file__).parents[2] / "openapi"
NOWHERE = "postgresql://localhost/never-connected"


def _publisher(folder: str) -> FastAPI:
    settings = PublisherSettings.model_validate({"database_url": NOWHERE})
    journal = open_journal("memory://openapi", client_name="openapi")
    backends = Backends(journal, open_blobs(folder), Authenticator.off(), SystemClock())
    parts = publisher(settings, backends)
    for component in parts.components:
        component.stop(5)
    return parts.app


def _content(folder: str) -> FastAPI:
    return content(NOWHERE, open_blobs(folder), Authenticator.off(), max_blob_bytes=1)


ROOMS: dict[str, Callable[[str], FastAPI]] = {"publisher": _publisher, "content": _content}
"""How each room's app is made without anything running; it needs a folder for blobs."""


def document(room: str) -> dict[str, Any]:
    """Return the document of one room."""
    with tempfile.TemporaryDirectory() as folder:
        return ROOMS[room](folder).openapi()


def text(room: str) -> str:
    """Return the file's text."""
    return yaml.safe_dump(document(room), sort_keys=False, allow_unicode=True, width=100)


if __name__ == "__main__":
    for name in ROOMS:
        (FOLDER / f"{name}.yaml").write_text(text(name))
