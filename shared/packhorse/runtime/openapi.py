"""The OpenAPI document: stable operation ids, problems as the one form of error, and streams."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from packhorse.runtime.problems import ProblemDocument, documented

_METHODS = ("get", "put", "post", "patch", "delete", "head", "options")
_REPLACED = ("HTTPValidationError", "ValidationError")


def operation_id(route: APIRoute) -> str:
    """Return the function's name in camelCase: clients are generated from it."""
    first, *rest = route.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def event_kind(
    name: str, data: dict[str, Any], *, has_id: bool = True, always: bool = True
) -> dict[str, Any]:
    """Describe one kind of server-sent event by its name and the JSON schema of its data.

    `always` tells whether every event that can have an id has one.
    """
    told: dict[str, Any] = {
        "event": {"const": name},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": data,
        },
    }
    required = list(told)
    if has_id:
        told["id"] = {"type": "string", "description": "Send it back as Last-Event-ID"}
        required += ["id"] if always else []
    return {"type": "object", "required": required, "properties": told}


def event_stream(kinds: Sequence[dict[str, Any]], service: str = "service") -> dict[str, Any]:
    """Describe a stream of server-sent events as OpenAPI 3.2 does; `service` is who ends it."""
    return {
        "description": "The events, until the client goes. The stream ends by itself after some "
        f"minutes and when the {service} ends: connect again with the last id as Last-Event-ID",
        "content": {"text/event-stream": {"itemSchema": {"oneOf": list(kinds)}}},
    }


def complete(app: FastAPI) -> None:
    """Make `app.openapi()` document every error as a problem."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        if "ProblemDocument" not in schemas:
            _add_problem_schema(schemas)
            for path in document["paths"].values():
                for method in _METHODS:
                    if method in path:
                        _complete_operation(path[method])
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _add_problem_schema(schemas: dict[str, Any]) -> None:
    schema = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schema.pop("$defs"))
    schemas["ProblemDocument"] = schema
    for name in _REPLACED:
        schemas.pop(name, None)


def _complete_operation(operation: dict[str, Any]) -> None:
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


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter: it can be left out, but a URL can't say null."""
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) != 1:
        return schema
    return {**{key: value for key, value in schema.items() if key != "anyOf"}, **options[0]}
