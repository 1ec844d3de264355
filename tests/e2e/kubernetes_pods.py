"""What a kubelet makes of a pod: its variables, its volumes, and a container by podman."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.harness.containers import Container

Object = dict[str, Any]
"""One of Kubernetes' objects, as its JSON."""

TOKEN = "token-of-the-pods"
_ADDRESS = "127.0.0.1"
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_FILES = {"token": TOKEN, "namespace": "default", "ca.crt": ""}


class Pod:
    """One pod with its one container, on the network of this machine."""

    def __init__(self, thing: Object, folder: Path) -> None:
        self.name = thing["metadata"]["name"]
        self._described = thing["spec"]["containers"][0]
        self._volumes = thing["spec"].get("volumes", [])
        self._folder = folder / self.name
        self._folder.mkdir()
        self.container = Container(self.name, self._described["image"], self._folder / "log")

    def run(
        self,
        config_map: Callable[[str], Object],
        secrets: Mapping[str, Mapping[str, str]],
        hosts: set[str],
        report: Callable[[Object], None],
    ) -> None:
        """Run its container to the end; `report` is told each status that the pod gets."""
        made = {one["name"]: self._volume(one, config_map) for one in self._volumes}
        mounts = {one["mountPath"]: made[one["name"]] for one in self._described["volumeMounts"]}
        started = {"startedAt": now()}
        self.container.start(
            [*self._described.get("command", []), *self._described.get("args", [])],
            {one["name"]: self._value(one, secrets) for one in self._described["env"]},
            mounts | {_ACCOUNT: self._with_files("account", _FILES)},
            hosts,
        )
        report(self._status("Running", {"running": started}))
        code = self.container.wait()
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", **started}
        state = {"terminated": {**ended, "finishedAt": now()}}
        report(self._status("Failed" if code else "Succeeded", state))

    def _status(self, phase: str, state: Object) -> Object:
        container = {"name": self._described["name"], "image": self._described["image"]}
        container |= {"imageID": "", "restartCount": 0, "ready": phase == "Running", "state": state}
        return {"phase": phase, "podIP": _ADDRESS, "containerStatuses": [container]}

    def _value(self, variable: Object, secrets: Mapping[str, Mapping[str, str]]) -> str:
        source = variable.get("valueFrom")
        if source is None:
            return str(variable.get("value", ""))
        if named := source.get("secretKeyRef"):
            return secrets[named["name"]][named["key"]]
        fields = {"status.podIP": _ADDRESS, "metadata.name": self.name}
        return fields[source["fieldRef"]["fieldPath"]]

    def _volume(self, volume: Object, config_map: Callable[[str], Object]) -> Path:
        named = volume.get("configMap")
        if named is None:
            return self._with_files(volume["name"], {})
        data = config_map(named["name"])["data"]
        paths = {item["path"]: item["key"] for item in named.get("items", [])}
        files = {path: data[key] for path, key in (paths or {key: key for key in data}).items()}
        return self._with_files(volume["name"], files)

    def _with_files(self, name: str, files: Mapping[str, str]) -> Path:
        place = self._folder / name
        place.mkdir()
        place.chmod(0o777)
        for path, text in files.items():
            (place / path).write_text(text)
        return place


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
