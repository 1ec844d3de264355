"""The OpenAPI documents of the services: `python -m tests.harness.openapi` writes `openapi/`."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from packhorse.blobs.open import open_blobs
from packhorse.clock import SystemClock
from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.http import Service
from packhorse_services.cleanup.app import cleanup_service
from packhorse_services.cleanup.settings import Settings as CleanupSettings
from packhorse_services.console.app import console
from packhorse_services.console.settings import Settings as ConsoleSettings
from packhorse_services.content.app import create as content
from packhorse_services.content.settings import Settings as ContentSettings
from packhorse_services.jobs.assembly import assemble as assemble_jobs
from packhorse_services.jobs.settings import Settings as JobsSettings
from packhorse_services.pipeline.reports.app import reports_app
from packhorse_services.pipeline.settings import Settings as PipelineSettings
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.publisher.app import Backends, publisher
from packhorse_services.publisher.settings import Settings as PublisherSettings
from packhorse_services.subscriber.app import create as subscriber
from packhorse_services.subscriber.assembly import assemble
from packhorse_services.subscriber.settings import Settings as SubscriberSettings
from packhorse_services.topology.assembly import assemble as assemble_topology
from packhorse_services.topology.settings import Settings as TopologySettings
from tests.harness import yaml_text

FOLDER = Path(__file__).parents[2] / "openapi"
NOWHERE = "postgresql://localhost/never-connected"


def _journal() -> Journal:
    return open_journal("memory://openapi", client_name="openapi")


def _stopped(service: Service) -> FastAPI:
    """Return the app of a service whose components have stopped."""
    for component in service.components:
        component.stop(5)
    return service.app


def _publisher(folder: str) -> FastAPI:
    settings = PublisherSettings.model_validate({"database_url": NOWHERE})
    backends = Backends(_journal(), open_blobs(folder), Authenticator.off(), SystemClock())
    return _stopped(publisher(settings, backends))


def _subscriber(folder: str) -> FastAPI:
    settings = SubscriberSettings.model_validate(
        {"database_url": NOWHERE, "subscriber": "sub1", "endpoint": "http://127.0.0.1:8083"}
    )
    blobs = open_blobs(folder)
    parts = assemble(settings, _journal(), blobs)
    return subscriber(parts, NOWHERE, blobs, Authenticator.off())


def _cleanup(folder: str) -> FastAPI:
    settings = CleanupSettings.model_validate({"database_url": NOWHERE})
    return _stopped(cleanup_service(settings, _journal(), open_blobs(folder), Authenticator.off()))


def _content(folder: str) -> FastAPI:
    return content(NOWHERE, open_blobs(folder), Authenticator.off(), max_blob_bytes=1)


def _pipeline(folder: str) -> FastAPI:
    return reports_app(Location.parse(folder), Authenticator.off())


def _topology(_folder: str) -> FastAPI:
    settings = TopologySettings.model_validate({"database_url": NOWHERE})
    return _stopped(assemble_topology(settings, Authenticator.off()))


def _jobs(_folder: str) -> FastAPI:
    settings = JobsSettings.model_validate({"database_url": NOWHERE})
    return _stopped(assemble_jobs(settings, Authenticator.off()))


def _console(_folder: str) -> FastAPI:
    settings = ConsoleSettings.model_validate({"publisher_urls": {"main": "http://127.0.0.1:8080"}})
    return console(settings, Authenticator.off())


SERVICES: dict[str, Callable[[str], FastAPI]] = {
    "publisher": _publisher,
    "content": _content,
    "subscriber": _subscriber,
    "cleanup": _cleanup,
    "pipeline": _pipeline,
    "topology": _topology,
    "jobs": _jobs,
    "console": _console,
}
"""How each service's app is made without anything running; it needs a folder for blobs."""


PORTS = {
    "publisher": PublisherSettings,
    "content": ContentSettings,
    "subscriber": SubscriberSettings,
    "cleanup": CleanupSettings,
    "pipeline": PipelineSettings,
    "topology": TopologySettings,
    "jobs": JobsSettings,
    "console": ConsoleSettings,
}


def document(service: str) -> dict[str, Any]:
    """Return the document of one service; the file names the server by its default address."""
    with tempfile.TemporaryDirectory() as folder:
        found = SERVICES[service](folder).openapi()
    port = PORTS[service].model_fields["port"].default
    server = {"url": f"http://127.0.0.1:{port}", "description": f"A {service} on its default port"}
    return {**found, "servers": [server]}


def text(document: dict[str, Any]) -> str:
    """Return the text of a document's file."""
    return yaml_text.written(document)


if __name__ == "__main__":
    for name in SERVICES:
        (FOLDER / f"{name}.yaml").write_text(text(document(name)))
