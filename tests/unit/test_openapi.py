"""The committed OpenAPI documents are those of the code, and clients can be generated from them."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from packhorse.runtime.openapi import FILE, operations, read_documentation, successes
from tests.harness.openapi import FOLDER, SERVICES, document, text

INT32, INT64 = 2**31, 2**63
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

every_service = pytest.mark.parametrize("service", SERVICES)
described = cache(document)


@every_service
def test_the_committed_document_is_current(service: str) -> None:
    committed = (FOLDER / f"{service}.yaml").read_text()
    assert committed == text(described(service)), "run `make openapi` and commit the result"


@every_service
def test_the_document_is_valid(service: str) -> None:
    errors = OpenAPIV31SpecValidator(described(service)).iter_errors()
    assert not [f"{list(error.absolute_path)}: {error.message[:300]}" for error in errors]


@every_service
def test_every_operation_documents_its_errors(service: str) -> None:
    for name, operation in operations(described(service)):
        errors = {status for status in operation["responses"] if status >= "4"}
        assert {"401", "403", "503", "default"} <= errors, name
        for status in errors:
            assert "application/problem+json" in operation["responses"][status]["content"]
            again = "Retry-After" in operation["responses"][status].get("headers", {})
            assert again is (status in ("429", "503")), (name, status)


@every_service
def test_every_conditional_answer_says_by_which_headers(service: str) -> None:
    for name, operation in operations(described(service)):
        asked = {one["name"].lower() for one in operation.get("parameters", ())}
        assert ("if-none-match" in asked) >= ("304" in operation["responses"]), name
        assert ({"range", "if-range"} <= asked) is ("206" in operation["responses"]), name


@every_service
def test_every_operation_has_one_schema_for_success(service: str) -> None:
    for name, operation in operations(described(service)):
        found = [response["content"] for _, response in successes(operation)]
        schemas = [{media: one.get("schema") for media, one in c.items()} for c in found]
        assert all(schema == schemas[0] for schema in schemas), f"{name}: make it two operations"
        for media, schema in schemas[0].items() if schemas else ():
            assert schema, f"{name}, {media}: name a model, or response_class=Response"


@every_service
def test_a_patch_is_taken_under_the_media_type_of_merge_patches_too(service: str) -> None:
    for name, operation in operations(described(service)):
        if name.startswith("PATCH "):
            content = operation["requestBody"]["content"]
            assert [*content] == ["application/json", "application/merge-patch+json"], name


@every_service
def test_operation_ids_name_one_operation_each(service: str) -> None:
    ids = [operation["operationId"] for _, operation in operations(described(service))]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9]+", one) for one in ids), ids


@every_service
def test_every_integer_says_how_wide_it_is(service: str) -> None:
    for where, schema in integers(described(service), "#"):
        bounds = [schema[name] for name in BOUNDS if name in schema]
        assert all(isinstance(bound, int) for bound in bounds), (where, schema)
        assert schema.get("format") in ("int32", "int64"), (where, schema)
        if schema["format"] == "int32":
            assert len(bounds) == 2, f"{where}: without bounds it is an int64"
        limit = INT32 if schema["format"] == "int32" else INT64
        assert all(-limit <= bound < limit for bound in bounds), (where, schema)


def integers(found: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas of integers, with where they are."""
    if isinstance(found, dict):
        if found.get("type") == "integer":
            yield where, found
        members = [(name, value) for name, value in found.items() if name != "example"]
    else:
        members = list(enumerate(found)) if isinstance(found, list) else []
    for name, value in members:
        yield from integers(value, f"{where}/{name}")


@every_service
def test_the_server_and_every_tag_are_described(service: str) -> None:
    found = described(service)
    assert re.fullmatch(r"http://127\.0\.0\.1:80\d\d", found["servers"][0]["url"])
    used = {tag for _, operation in operations(found) for tag in operation["tags"]}
    reported = {tag["name"]: tag["description"] for tag in found["tags"]}
    assert used == set(reported), f"describe the tags in the {FILE} of the service"
    assert all(len(description) > 10 for description in reported.values())


@every_service
def test_what_generators_misread_is_avoided(service: str) -> None:
    tags = [operation["tags"] for _, operation in operations(described(service))]
    assert all(len(one) == 1 for one in tags), "Go defines such an operation twice"
    assert "patternProperties" not in text(described(service)), "Java makes it an Object"


@every_service
def test_every_operation_has_examples(service: str) -> None:
    lines = [line for _, operation in operations(described(service)) for line in lacking(operation)]
    if lines:
        advice = f"add this to the {FILE} of the service, then run `make openapi`:"
        pytest.fail("\n".join([advice, *lines]), pytrace=False)


def lacking(operation: dict[str, Any]) -> Iterator[str]:
    name = operation["operationId"]
    for parameter in operation.get("parameters", ()):
        if parameter.get("required") and "example" not in parameter:
            yield f'"parameters": {{"{parameter["name"]}": …}} (of {name})'
    if "requestBody" in operation and not exemplified(operation["requestBody"]):
        yield f'"operations": {{"{name}": {{"request": …}}}}'
    if not all(exemplified(response) for _, response in successes(operation)):
        yield f'"operations": {{"{name}": {{"response": …}}}}'


def exemplified(body: dict[str, Any]) -> bool:
    """Whether it has an example, or is of bytes that no text can show."""
    shown = body["content"].values()
    return any("example" in one or one.get("schema", {}).get("format") == "binary" for one in shown)


@every_service
def test_examples_are_what_their_schemas_say(service: str) -> None:
    found = closed(described(service))
    wrong = [
        f"{name}: {error.json_path}: {error.message[:200]}"
        for name, operation in operations(found)
        for one in (*bodies(operation), *operation.get("parameters", ()))
        if "example" in one
        for error in Draft202012Validator(
            {**one.get("schema", {}), "components": found["components"]}
        ).iter_errors(one["example"])
    ]
    if wrong:
        pytest.fail("\n".join([f"change these examples in {FILE}:", *wrong]), pytrace=False)


def bodies(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """What the operation takes and what its successes answer, by media type."""
    described = [operation.get("requestBody", {"content": {}})]
    described += [response for _, response in successes(operation)]
    return [media for body in described for media in body["content"].values()]


def closed(schema: Any) -> Any:
    """The same document, where no object has members that its schema does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    added = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return {**added, **{n: v if n == "example" else closed(v) for n, v in schema.items()}}


DOCUMENTED_IN = {
    "jobs": "jobs.http",
    "pipeline": "pipeline.reports",
    "publisher": "publisher.http",
    "topology": "topology.http",
}
"""The packages of the texts, where they are not the service's own."""


def test_documented_operations_exist() -> None:
    for service in SERVICES:
        ids = {operation["operationId"] for _, operation in operations(described(service))}
        package = f"packhorse_services.{DOCUMENTED_IN.get(service, service)}"
        gone = set(read_documentation([package]).operations) - ids
        assert not gone, f"{package} has examples of operations that are gone"


def test_r20_a_queue_can_be_edited_by_clear_alone() -> None:
    changing = {
        (path, method)
        for path, item in described("publisher")["paths"].items()
        if path.startswith("/queues") and "/errors" not in path
        for method in item
        if method != "get"
    }
    assert changing == {("/queues/{subscriber}/clear", "post")}
