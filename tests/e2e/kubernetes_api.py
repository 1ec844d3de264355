"""A stand-in for Kubernetes' API server: it keeps what Spark asks for, and podman runs the pods.

It has what Spark's client uses of the API: objects by kind, lists by labels, watches, and pods that
run as containers on the network of this machine. There are no nodes, no limits and no rights.
"""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from tests.e2e.kubernetes_pods import TOKEN, Object, Pod, now
from tests.harness.answering import answering

_PATH = re.compile(r"/apis?/(?:[\w.]+/)?v\w+/namespaces/([\w-]+)/(\w+)(?:/([\w.-]+))?$")
_KINDS = {
    "pods": "Pod",
    "services": "Service",
    "configmaps": "ConfigMap",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "networkpolicies": "NetworkPolicy",
}
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete", "GET": "get"}
_LABEL = re.compile(r"([\w./-]+?)(?:(!=|==?| in | notin )(.*))?")


@dataclass
class KubernetesApi:
    """One cluster. `secrets` are there from the start."""

    folder: Path
    secrets: Mapping[str, Mapping[str, str]]
    url: str = ""
    pods: dict[str, Object] = field(default_factory=dict)
    """All that there were, by name, as they were last."""
    asked: dict[bool, set[tuple[str, str]]] = field(
        default_factory=lambda: {True: set(), False: set()}
    )
    """The verbs and kinds that were asked for by pods (True), and by others."""
    _objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    _running: dict[str, Pod] = field(default_factory=dict)
    _events: list[tuple[str, str, Object]] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _over: bool = False

    def logs(self, pod: str) -> str:
        """Return what the container of a pod has said so far, on both its streams."""
        return self._running[pod].container.said()

    def put(self, kind: str, thing: Object) -> Object:
        """Keep an object, new or as it is now; a pod that is new is started."""
        name = thing["metadata"]["name"]
        with self._changed:
            is_new = (kind, name) not in self._objects
            if is_new:
                thing["metadata"] |= {"uid": str(uuid4()), "creationTimestamp": now()}
            if is_new and kind == "pods":
                thing["status"] = {"phase": "Pending"}
                self._running[name] = Pod(thing, self.folder)
                threading.Thread(target=self._run, args=(name,), daemon=True).start()
            self._objects[kind, name] = thing
            self._tell("ADDED" if is_new else "MODIFIED", kind, thing)
        return thing

    def delete(self, kind: str, name: str) -> None:
        """Forget an object; the container of a pod ends before."""
        if kind == "pods" and name in self._running:
            self._running[name].container.end()
        with self._changed:
            if thing := self._objects.pop((kind, name), None):
                self._tell("DELETED", kind, thing)

    def get(self, kind: str, name: str) -> Object | None:
        """Return an object as it is now."""
        return self._objects.get((kind, name))

    def chosen(self, kind: str, query: Mapping[str, str]) -> tuple[str, list[Object]]:
        """Return the objects that a query selects, and the version from which to watch on."""
        with self._changed:
            found = [one for (of, _), one in self._objects.items() if of == kind]
            return str(len(self._events)), [one for one in found if _is_selected(one, query)]

    def watch(self, kind: str, query: Mapping[str, str]) -> Iterator[Object]:
        """Yield what becomes of the objects that a query selects, until all is over."""
        seen = int(query.get("resourceVersion") or 0)
        while not self._over:
            with self._changed:
                while len(self._events) <= seen and not self._over:
                    self._changed.wait()
                fresh, seen = self._events[seen:], len(self._events)
            for change, of, thing in fresh:
                if of == kind and _is_selected(thing, query):
                    yield {"type": change, "object": thing}

    def end(self) -> None:
        """End all watches and all containers."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        for pod in self._running.values():
            pod.container.end()

    def _tell(self, change: str, kind: str, thing: Object) -> None:
        thing["metadata"]["resourceVersion"] = str(len(self._events) + 1)
        copy = json.loads(json.dumps(thing))
        self._events.append((change, kind, copy))
        if kind == "pods":
            self.pods[thing["metadata"]["name"]] = copy
        self._changed.notify_all()

    def _run(self, name: str) -> None:
        def report(status: Object) -> None:
            with self._changed:
                if thing := self._objects.get(("pods", name)):
                    thing["status"] = status
                    self._tell("MODIFIED", "pods", thing)

        services = (one["metadata"] for one in self.chosen("services", {})[1])
        hosts = {f"{one['name']}.{one['namespace']}.svc" for one in services}
        self._running[name].run(self._config_map, self.secrets, hosts, report)

    def _config_map(self, name: str) -> Object:
        """Return one; Spark makes it when its pod is there already."""
        with self._changed:
            self._changed.wait_for(lambda: ("configmaps", name) in self._objects or self._over)
            return self._objects["configmaps", name]


@contextmanager
def kubernetes_api(
    folder: Path, secrets: Mapping[str, Mapping[str, str]]
) -> Iterator[KubernetesApi]:
    """Serve one on a port of its own; its containers end with the block."""
    api = KubernetesApi(folder, secrets)
    with answering(type("Handler", (_Handler,), {"api": api})) as api.url:
        try:
            yield api
        finally:
            api.end()


class _Handler(BaseHTTPRequestHandler):
    api: KubernetesApi
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        found = _PATH.match(address.path)
        if found is None or found[2] not in _KINDS:
            self._say(404, _failure(404, address.path))
            return
        verb = _verb(self.command, found[3], query)
        self.api.asked[TOKEN in self.headers.get("Authorization", "")].add((verb, found[2]))
        if verb == "watch":
            self._watch(found[2], query)
        elif self.headers.get_content_type() == "application/json-patch+json":
            self._say(*_done(self.api, "get", found, query, {}))  # labels that nothing asks for
        else:
            self._say(*_done(self.api, verb, found, query, json.loads(body or b"{}")))

    def _say(self, status: int, body: Object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _watch(self, kind: str, query: Mapping[str, str]) -> None:
        if "Upgrade" in self.headers:  # to a WebSocket: the client asks again without
            self._say(200, {})
            return
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        with suppress(OSError):  # the watcher has gone
            for event in self.api.watch(kind, query):
                self.wfile.write(json.dumps(event).encode() + b"\n")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815


def _verb(method: str, name: str | None, query: Mapping[str, str]) -> str:
    if query.get("watch") == "true":
        return "watch"
    of_many = {"GET": "list", "DELETE": "deletecollection"}
    return of_many.get(method, "") if name is None and method in of_many else _VERBS[method]


def _done(
    api: KubernetesApi, verb: str, found: re.Match[str], query: Mapping[str, str], body: Object
) -> tuple[int, Object]:
    """Do what is asked for; return the status and the body of the answer."""
    namespace, kind, name = found.groups()
    version, things = api.chosen(kind, query)
    if verb == "list":
        head = {"kind": f"{_KINDS[kind]}List", "apiVersion": "v1"}
        return 200, {**head, "metadata": {"resourceVersion": version}, "items": things}
    if verb in ("delete", "deletecollection"):
        for one in [name] if name else [thing["metadata"]["name"] for thing in things]:
            api.delete(kind, one)
        return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
    there = api.get(kind, name or body["metadata"]["name"])
    if verb == "create" and there is not None:
        return 409, _failure(409, "it is there already")
    if verb == "get":
        return (200, there) if there else (404, _failure(404, f"{kind} {name}"))
    body["metadata"] = {**(there or {}).get("metadata", {}), **body["metadata"]}
    body["metadata"]["namespace"] = namespace
    return 201 if there is None else 200, api.put(kind, {**(there or {}), **body})


def _failure(code: int, message: str) -> Object:
    head = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return {**head, "code": code, "message": message}


def _is_selected(thing: Object, query: Mapping[str, str]) -> bool:
    metadata = thing["metadata"]
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = part.partition("=")
        if metadata.get(path.removeprefix("metadata.")) != value:
            return False
    labels = metadata.get("labels", {})
    parts = re.split(r",(?![^()]*\))", query.get("labelSelector", ""))
    return all(_has_label(labels, part) for part in parts if part)


def _has_label(labels: Mapping[str, str], wanted: str) -> bool:
    found = _LABEL.fullmatch(wanted)
    assert found, wanted
    name, operator, values = found.groups()
    if operator is None:
        return name in labels
    among = labels.get(name) in values.strip("()").split(",")
    return among != (operator in ("!=", " notin "))
