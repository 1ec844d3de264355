"""What an OpenAPI document has from files: descriptions of tags, and examples.

A package of routes keeps them in its `documentation.json`:

    {"tags": {"queues": "What subscribers have still to import"},
     "parameters": {"subscriber": "sub1"},
     "operations": {"clearQueue": {"request": {…}, "response": {…}}}}

`parameters` are by name, for all operations; an operation may have `parameters` of its own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

FILE = "documentation.json"
METHODS = ("get", "put", "post", "patch", "delete", "head", "options")
Json = dict[str, Any]


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
