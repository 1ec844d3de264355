"""The OpenAPI document: stable operation ids, and problems as the one form of error."""

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
