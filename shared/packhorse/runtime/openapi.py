"""The OpenAPI document: what clients are generated from, so each statement is one they can use.

Operation ids are stable, problems are the one form of error, integers say how wide they are, and
streams are described as OpenAPI 3.1 can.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from packhorse.runtime.problems import ProblemDocument, documented

FILE = "documentation.json"
METHODS = ("get", "put", "post", "patch", "delete", "head", "options")
Json = dict[str, Any]

BYTES: Json = {"schema": {"type": "string", "format": "binary"}}
"""A body that is no text: what `content` has under its media type."""


# A package of routes keeps them in its `documentation.json`:
#
#     {"tags": {"queues": "What subscribers have still to import"},
#      "parameters": {"subscriber": "sub1"},
#      "operations": {"clearQueue": {"request": {…}, "response": {…}}}}
#
# `parameters` are by name, for all operations; an operation may have `parameters` of its own.
@dataclass(frozen=True, slots=True)
class Documentation:
    """Descriptions of tags by name, examples of parameters by name, of operations by id."""

    tags: Mapping[str, str] = field(default_factory=dict)
    parameters: Json = field(default_factory=dict)
    operations: Mapping[str, Json] = field(default_factory=dict)

    def add_to(self, document: Json) -> None:
        """Put the tags that the document uses and all examples into it."""
        used = {tag for _, one in operations(document) for tag in one.get("tags", ())}
        document["tags"] = [
            {"name": name, "description": text} for name, text in self.tags.items() if name in used
        ]
        for _, operation in operations(document):
            self._add_examples(operation)

    def _add_examples(self, operation: Json) -> None:
        found = self.operations.get(operation["operationId"], {})
        parameters = {**self.parameters, **found.get("parameters", {})}
        for parameter in operation.get("parameters", ()):
            if parameter["name"] in parameters:
                parameter["example"] = parameters[parameter["name"]]
        if "request" in found:
            _exemplify(operation.get("requestBody", {}), found["request"])
        if "response" in found:
            for _, response in successes(operation):
                _exemplify(response, found["response"])


def read_documentation(packages: Sequence[str]) -> Documentation:
    """Return what the packages' files say, together."""
    found = [json.loads(files(package).joinpath(FILE).read_text("utf-8")) for package in packages]
    return Documentation(*(_merged(found, name) for name in ("tags", "parameters", "operations")))


def operations(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield each operation with its method and path, such as `GET /queues`."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield f"{method.upper()} {path}", item[method]


def successes(operation: Json) -> Iterator[tuple[str, Json]]:
    """Yield the answers that are no errors and have a body, by their status."""
    for status, response in operation["responses"].items():
        if status.startswith("2") and response.get("content"):
            yield status, response


def _exemplify(described: Json, example: Any) -> None:
    """Set the example of each JSON body; of all bodies where none is JSON."""
    content: Mapping[str, Json] = described.get("content", {})
    in_json = {media for media in content if media.endswith("json")}
    for media in in_json or content:
        content[media]["example"] = example


def _merged(found: Sequence[Json], name: str) -> Json:
    return {key: value for one in found for key, value in one.get(name, {}).items()}


SERVERS = [{"url": "/", "description": "The service that serves this document"}]
_REPLACED = ("HTTPValidationError", "ValidationError")
_REFERENCE = "#/components/schemas/{model}"
_INT32 = 2**31
_INT64 = 2**63
_UPPER, _LOWER = ("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")
_STREAM = "text/event-stream"
_EVENTS = "x-events"
_MERGE_PATCH = "application/merge-patch+json"
"""What each PATCH takes beside JSON, and reads alike (RFC 7396)."""


def event_stream(kinds: Mapping[str, type[BaseModel]], service: str = "service") -> Json:
    """Describe a stream of server-sent events, by the events' names and the models of their data.

    OpenAPI 3.1 has no schema for the events of a stream: the body is a text, `x-events` names the
    schema of each event's data. `service` is who ends the stream.
    """
    schemas = {
        name: model.model_json_schema(ref_template=_REFERENCE) for name, model in kinds.items()
    }
    named = ", ".join(f"`{name}`: {model.__name__}" for name, model in kinds.items())
    body = {"type": "string", "description": f"Server-sent events; their data is JSON: {named}"}
    return {
        "description": "The events, until the client goes. The stream ends by itself after some "
        f"minutes and when the {service} ends: connect again with the last id as Last-Event-ID",
        "content": {_STREAM: {"schema": {**body, _EVENTS: schemas}}},
    }


def complete(app: FastAPI, packages: Sequence[str] = ()) -> None:
    """Make `app.openapi()` say all that clients need; `packages` have a `documentation.json`."""
    generate = app.openapi
    documentation = read_documentation(packages)
    completed: Json | None = None

    def openapi() -> Json:
        nonlocal completed
        document = generate()  # the same object each time
        if document is not completed:
            completed = document
            _complete(document)
            documentation.add_to(document)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


LOCATION: Json = {"headers": {"Location": {"schema": {"type": "string"}}}}
"""Of an answer that names what was made, or where to look for what will come of it."""

_RETRY_AFTER: Json = {
    "description": "After how many seconds to send the request again",
    "schema": {"type": "integer"},
}


def _complete(document: Json) -> None:
    document["servers"] = SERVERS
    document.setdefault("components", {})["headers"] = {"RetryAfter": _RETRY_AFTER}
    schemas = document["components"].setdefault("schemas", {})
    _add_problem_schema(schemas)
    for name, operation in operations(document):
        _complete_operation(operation)
        if name.startswith("PATCH "):
            content = operation["requestBody"]["content"]
            content[_MERGE_PATCH] = deepcopy(content["application/json"])
        _complete_success(name, operation, schemas)
    for schema in _integers(document):
        _complete_integer(schema)


def _add_problem_schema(schemas: Json) -> None:
    _add_schema(schemas, ProblemDocument.model_json_schema(ref_template=_REFERENCE))
    for name in _REPLACED:
        schemas.pop(name, None)


def _add_schema(schemas: Json, schema: Json) -> Json:
    """Move a model's schema and those that it uses to the components; return the reference."""
    schemas.update(schema.pop("$defs", {}))
    schemas[schema["title"]] = schema
    return {"$ref": _REFERENCE.format(model=schema["title"])}


def _complete_operation(operation: Json) -> None:
    responses = operation["responses"]
    statuses = [422] if "422" in responses else []
    if "security" in operation:
        statuses += [401, 403]
    for status, response in documented(*statuses).items():
        responses[str(status)] = response
    problem = documented(500)[500]["content"]
    responses.setdefault("default", {"description": "Any other problem", "content": problem})
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _without_null(parameter["schema"])


def _complete_success(name: str, operation: Json, schemas: Json) -> None:
    for status, response in operation["responses"].items():
        if name.startswith("HEAD ") and status.startswith("2"):
            response.pop("content", None)
        stream = response.get("content", {}).get(_STREAM)
        if stream:
            stream.pop("itemSchema", None)  # the framework's, of OpenAPI 3.2
            events = stream["schema"][_EVENTS]
            for event, schema in events.items():
                events[event] = _add_schema(schemas, schema)


def _without_null(schema: Json) -> Json:
    """Return the schema of a parameter: it can be left out, but a URL can't say null."""
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) != 1:
        return schema
    return {**{key: value for key, value in schema.items() if key != "anyOf"}, **options[0]}


def _integers(found: Any) -> Iterator[Json]:
    """Yield each schema of an integer, wherever it is."""
    if isinstance(found, dict):
        if found.get("type") == "integer":
            yield found
        for value in found.values():
            yield from _integers(value)
    elif isinstance(found, list):
        for value in found:
            yield from _integers(value)


def _complete_integer(schema: Json) -> None:
    """Say how wide it is, and write limits so that none is beyond what the width can hold.

    An integer is 64 bits wide unless its limits say that 32 are enough.
    """
    for name in (*_UPPER, *_LOWER):
        if name in schema:
            schema[name] = int(schema[name])
            if not -_INT64 < schema[name] < _INT64 - 1:  # a double can't distinguish it from 2**63
                del schema[name]
    small = _has(schema, _UPPER) and _has(schema, _LOWER)
    schema["format"] = "int32" if small else "int64"


def _has(schema: Json, limits: Sequence[str]) -> bool:
    return any(-_INT32 <= schema[name] < _INT32 for name in limits if name in schema)
