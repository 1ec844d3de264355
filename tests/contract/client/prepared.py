"""What the played service answers: examples of the documents, and events."""

import json
from copy import deepcopy
from functools import cache
from typing import Any

from packhorse.runtime.openapi import operations, successes
from tests.harness.client_packages import documents
from tests.harness.yaml_text import parsed

PACKAGES = {"path": "/events?types=package", "after": "p0"}


def example(service: str, operation_id: str) -> Any:
    """The answer that an OpenAPI document shows for an operation."""
    document = _document(service)
    [found] = [one for _, one in operations(document) if one["operationId"] == operation_id]
    _, response = next(successes(found))
    return deepcopy(response["content"]["application/json"]["example"])


@cache
def _document(service: str) -> dict[str, Any]:
    document: dict[str, Any] = parsed(documents()[service].read_text())
    return document


def block(number: int, kind: str = "package") -> str:
    data = json.dumps({"offset": number}, indent=1).replace("\n", "\ndata: ")
    return f": a comment\n\nevent: {kind}\nid: p{number}\ndata: {data}\n\n"


def event(number: int, kind: str = "package") -> dict[str, Any]:
    data = {"offset": number}
    return {"kind": kind, "id": f"p{number}", "data": data, "gap": kind == "gap"}
