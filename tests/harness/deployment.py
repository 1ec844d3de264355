"""The deployment files as data: which containers of ours they start, and with what."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helm_python import Chart

from tests.harness.yaml_text import all_parsed, parsed

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "packhorse"
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "services" / "Dockerfile"
FULL_VALUES = ROOT / "tests" / "deployment" / "values-full.yaml"
IMAGES = {"packhorse": "", "packhorse-pipeline": "pipeline"}
"""Our images, and the stage of the recipe that each is; the last one has no name."""


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
    loaded: dict[str, Any] = parsed(text)
    return loaded


def full_values() -> dict[str, Any]:
    """Return values that differ from the chart's defaults in everything."""
    loaded: dict[str, Any] = parsed(FULL_VALUES.read_text())
    return loaded


def manifests(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return what the chart renders for `values`, notes left out."""
    with Chart.load(CHART) as chart:
        texts = chart.render(values, name="release", namespace="content")
    documents = (
        document
        for name, text in sorted(texts.items())
        if name.endswith(".yaml")
        for document in all_parsed(text)
    )
    return [document for document in documents if document]


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """Return the documents of one kind by their names."""
    return {d["metadata"]["name"]: d for d in documents if d["kind"] == kind}


def pods(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the pods that the documents would start."""
    for document in documents:
        if (pod := pod_of(document)) is not None:
            yield pod


def is_ours(service: Mapping[str, Any]) -> bool:
    """Return whether a service of the compose file is one of our programs."""
    return service["image"].partition(":")[0] in IMAGES


def stages() -> dict[str, tuple[str, str]]:
    """Return what each stage of the recipe stands on, and its lines; the last one has no name."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    _, *parts = re.split(r"^FROM ", text, flags=re.MULTILINE)
    found = {}
    for part in parts:
        first, _, lines = part.partition("\n")
        parent, _, name = first.partition(" AS ")
        found[name.strip()] = (parent.strip(), lines)
    return found


def pod_of(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the pod that a manifest describes, if it does."""
    spec = document.get("spec", {})
    if document["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    elif document["kind"] not in ("Deployment", "Job"):
        return None
    pod: dict[str, Any] = spec["template"]["spec"]
    return pod


def image_environment(stage: str = "") -> dict[str, str]:
    """Return the variables that an image itself sets."""
    if stage not in stages():
        return {}
    parent, text = stages()[stage]
    lines = re.findall(r"^ENV (.+)$", text, re.MULTILINE)
    own = dict(pair.split("=", 1) for line in lines for pair in shlex.split(line))
    return {**image_environment(parent), **own}


def containers() -> list[Container]:
    """Return every container of our image that compose or the chart starts."""
    return [*_composed(), *_rendered("default", None), *_rendered("full", full_values())]


def _composed() -> Iterator[Container]:
    for name, service in compose()["services"].items():
        if is_ours(service):
            image = image_environment(IMAGES[service["image"].partition(":")[0]])
            yield Container(
                where=f"compose {name}",
                command=tuple(service["command"]),
                environment={**image, **service.get("environment", {})},
                probes=_probed(service["healthcheck"]),
            )


def _probed(healthcheck: Mapping[str, Any]) -> tuple[str, ...]:
    found = re.findall(r"127\.0\.0\.1:8080(/\w+)", " ".join(healthcheck.get("test", [])))
    return tuple(found)


def _rendered(values_name: str, values: dict[str, Any] | None) -> Iterator[Container]:
    documents = manifests(values)
    shared = next(d["data"] for d in documents if d["kind"] == "ConfigMap")
    for document in documents:
        for container in (pod_of(document) or {"containers": ()})["containers"]:
            own = {e["name"]: e["value"] for e in container["env"] if "value" in e}
            inherited = shared if "envFrom" in container else {}
            yield Container(
                where=f"chart ({values_name}) {document['metadata']['name']}",
                command=tuple(container["command"]),
                environment={**_image_of(container), **inherited, **own},
                probes=tuple(
                    probe["httpGet"]["path"]
                    for key, probe in container.items()
                    if key.endswith("Probe")
                ),
            )


def _image_of(container: Mapping[str, Any]) -> dict[str, str]:
    name = container["image"].partition(":")[0].rpartition("/")[2]
    return image_environment(IMAGES[name])
