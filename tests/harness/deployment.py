"""The deployment files as data: which containers of ours they start, and with what."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "packhorse"
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "services" / "Dockerfile"
FULL_VALUES = ROOT / "tests" / "deployment" / "values-full.yaml"
IMAGE = "packhorse"


@dataclass(frozen=True)
class Container:
    """One container of our image. `probes` are the paths that somebody asks for."""

    where: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    probes: tuple[str, ...]

    @property
    def settings(self) -> dict[str, str]:
        """Return the variables that are packhorse's own."""
        return {k: v for k, v in self.environment.items() if k.startswith("PACKHORSE_")}


def compose() -> dict[str, Any]:
    """Return the compose file, its anchors resolved and its variables at their defaults."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE.read_text())
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def full_values() -> dict[str, Any]:
    """Return values that differ from the chart's defaults in everything."""
    loaded: dict[str, Any] = yaml.safe_load(FULL_VALUES.read_text())
    return loaded


def manifests(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return what the chart renders for `values`, notes left out."""
    with Chart.load(CHART) as chart:
        texts = chart.render(values, name="release", namespace="content")
    documents = (
        document
        for name, text in sorted(texts.items())
        if name.endswith(".yaml")
        for document in yaml.safe_load_all(text)
    )
    return [document for document in documents if document]


def image_environment() -> dict[str, str]:
    """Return the variables that the image itself sets."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    last_stage = text.rsplit("\nFROM ", 1)[1]
    lines = re.findall(r"^ENV (.+)$", last_stage, re.MULTILINE)
    return dict(pair.split("=", 1) for line in lines for pair in shlex.split(line))


def containers() -> list[Container]:
    """Return every container of our image that compose or the chart starts."""
    return [*_composed(), *_rendered("default", None), *_rendered("full", full_values())]


def _composed() -> Iterator[Container]:
    for name, service in compose()["services"].items():
        if service["image"].startswith(f"{IMAGE}:"):
            yield Container(
                where=f"compose {name}",
                command=tuple(service["command"]),
                environment={**image_environment(), **service.get("environment", {})},
                probes=_probed(service["healthcheck"]),
            )


def _probed(healthcheck: Mapping[str, Any]) -> tuple[str, ...]:
    found = re.findall(r"127\.0\.0\.1:8080(/\w+)", " ".join(healthcheck.get("test", [])))
    return tuple(found)


def _rendered(values_name: str, values: dict[str, Any] | None) -> Iterator[Container]:
    documents = manifests(values)
    shared = next(d["data"] for d in documents if d["kind"] == "ConfigMap")
    for document in documents:
        if document["kind"] not in ("Deployment", "Job"):
            continue
        for container in document["spec"]["template"]["spec"]["containers"]:
            own = {e["name"]: e["value"] for e in container["env"] if "value" in e}
            inherited = shared if "envFrom" in container else {}
            yield Container(
                where=f"chart ({values_name}) {document['metadata']['name']}",
                command=tuple(container["command"]),
                environment={**image_environment(), **inherited, **own},
                probes=tuple(
                    probe["httpGet"]["path"]
                    for key, probe in container.items()
                    if key.endswith("Probe")
                ),
            )
