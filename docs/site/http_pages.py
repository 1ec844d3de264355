"""The OpenAPI documents as pages: operations by tag, then the schemas that they name."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from docs.site.schemas import cell, described, kind, meaning, plain, table

_METHODS = ("get", "put", "post", "patch", "delete", "head", "options")
Document = Mapping[str, Any]


def http_page(name: str, document: Document) -> str:
    """Return the page of one service; `name` is its file's and part of the anchors."""
    info = document["info"]
    lines = [f"# {info['title']}", "", plain(info.get("description", "")), ""]
    for server in document.get("servers", ()):
        lines += [f"By default at `{server['url']}`.", ""]
    for tag in document.get("tags", ()):
        operations = list(_tagged(document, tag["name"]))
        if operations:
            lines += [f"## {tag['name'].capitalize()}", "", plain(tag.get("description", "")), ""]
        for method, path, operation in operations:
            lines += _operation(name, f"{method.upper()} {path}", operation)
    lines += ["## Schemas", ""]
    lines += described(name, document.get("components", {}).get("schemas", {}))
    return "\n".join(lines)


def _tagged(document: Document, tag: str) -> Iterator[tuple[str, str, Document]]:
    known = [one["name"] for one in document.get("tags", ())]
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item and _first_known(item[method], known) == tag:
                yield method, path, item[method]


def _first_known(operation: Document, known: list[str]) -> str | None:
    tags = [one for one in operation.get("tags", ()) if one in known]
    return tags[0] if tags else known[-1]


def _operation(name: str, call: str, operation: Document) -> Iterator[str]:
    yield from (f"### `{call}`", "", plain(operation.get("description", "")), "")
    scopes = [s for one in operation.get("security", ()) for asked in one.values() for s in asked]
    if operation.get("security"):
        asked = " or ".join(f"`{scope}`" for scope in scopes)
        yield from (f"Scope: {asked}." if asked else "Asks for any token.", "")
    if operation.get("parameters"):
        rows = ([*_parameter(one, name)] for one in operation["parameters"])
        yield from table(("parameter", "type", "meaning"), rows)
    if "requestBody" in operation:
        for media, content in operation["requestBody"]["content"].items():
            yield from _content(f"Body, `{media}`", content, name)
    yield from _answers(operation["responses"], name)


def _parameter(one: Document, name: str) -> Iterator[str]:
    optional = "" if one.get("required") else "; optional"
    yield f"`{one['name']}` ({one['in']})"
    yield kind(one["schema"], name) + optional
    yield meaning(one["schema"], one.get("description", ""))


def _content(title: str, content: Document, name: str) -> Iterator[str]:
    schema = content.get("schema", {})
    yield from (f"{title}: {kind(schema, name)}." if schema else f"{title}.", "")
    if "example" in content:
        shown = content["example"]
        text = shown if isinstance(shown, str) else json.dumps(shown, indent=2, ensure_ascii=False)
        yield from ("```json", text.rstrip(), "```", "")


def _answers(responses: Document, name: str) -> Iterator[str]:
    problems = []
    for status, answer in sorted(responses.items()):
        contents = answer.get("content", {})
        if "application/problem+json" in contents:
            problems.append(f"{status} ({cell(answer.get('description', ''))})")
            continue
        yield from (f"**{status}** {plain(answer.get('description', ''))}", "")
        if answer.get("headers"):
            yield from ("Headers: " + ", ".join(f"`{one}`" for one in answer["headers"]) + ".", "")
        for media, content in contents.items():
            yield from _content(f"`{media}`", content, name)
    if problems:
        yield from (f"Problems: {', '.join(problems)}.", "")
