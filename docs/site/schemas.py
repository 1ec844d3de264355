"""JSON schemas of the documents as Markdown: one table of members for each."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "above {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matches `{}`",
    "default": "default `{}`",
}
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
"""Bounds of the type, which a reader learns nothing from."""

Schema = Mapping[str, Any]


def plain(text: str) -> str:
    """Return a description as one line of Markdown, without HTML."""
    pieces = " ".join(text.split()).split("`")
    pieces[::2] = [piece.replace("<", "&lt;").replace("*", "\\*") for piece in pieces[::2]]
    return "`".join(pieces)


def cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return plain(text).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table; cells are Markdown already."""
    head = list(head)
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def target(document: str, name: str) -> str:
    """Return the anchor of a schema, which is unique in the site."""
    return f"{document}-{name}".lower()


def kind(schema: Schema, document: str) -> str:
    """Return what a value is: its type, or a link to the schema of its own."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{target(document, name)})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(kind(one, document) for one in schema[several]))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    inside = schema.get("items") or schema.get("additionalProperties")
    if schema.get("type") in ("array", "object") and isinstance(inside, Mapping):
        return f"{schema['type']} of {kind(inside, document)}"
    named = schema.get("type", "any JSON")
    named = " or ".join(named) if isinstance(named, list) else str(named)
    shown = schema.get("format")
    return f"{named} ({shown})" if shown and shown != "int64" else named


def limits(schema: Schema) -> str:
    """Return what a value has to keep to, "" where it has no limits."""
    branches = [schema, *(one for one in schema.get("anyOf", ()) if one.get("type") != "null")]
    said = [
        words.format(str(branch[name]).replace("|", "\\|"))
        for branch in branches
        for name, words in _LIMITS.items()
        if branch.get(name) is not None and branch[name] not in (_SMALLEST, _LARGEST, "")
    ]
    return ", ".join(dict.fromkeys(said))


def meaning(schema: Schema, described: str = "") -> str:
    """Return the description of a value with its limits, for a cell."""
    said = cell(described or str(schema.get("description", "")))
    bounds = limits(schema)
    return f"{said}{'; ' if said and bounds else ''}{bounds}"


def members(schema: Schema, document: str) -> Iterator[str]:
    """Yield the table of an object's members; one line for a schema of another kind."""
    if not schema.get("properties"):
        yield from (f"{kind(schema, document)}. {meaning(schema)}".strip(), "")
        return
    required = set(schema.get("required", ()))
    rows = (
        [
            f"`{name}`",
            kind(one, document) + ("" if name in required else "; optional"),
            meaning(one),
        ]
        for name, one in schema["properties"].items()
    )
    yield from table(("member", "type", "meaning"), rows)


def described(document: str, all_schemas: Mapping[str, Schema]) -> Iterator[str]:
    """Yield a section for each schema of a document."""
    for name, schema in sorted(all_schemas.items()):
        yield from (f"({target(document, name)})=", f"### {name}", "")
        if schema.get("description") and schema.get("properties"):
            yield from (plain(schema["description"]), "")
        yield from members(schema, document)
