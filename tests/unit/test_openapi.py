"""The committed OpenAPI documents are those of the code, and document every error."""

import pytest

from tests.harness.openapi import FOLDER, ROOMS, document, text


@pytest.mark.parametrize("room", ROOMS)
def test_the_committed_document_is_current(room: str) -> None:
    committed = (FOLDER / f"{room}.yaml").read_text()
    assert committed == text(room), "run `make openapi` and commit the result"


@pytest.mark.parametrize("room", ROOMS)
def test_every_operation_documents_its_errors(room: str) -> None:
    for path, item in document(room)["paths"].items():
        for method, operation in item.items():
            errors = {status for status in operation["responses"] if status >= "4"}
            assert {"401", "403", "503", "default"} <= errors, (method, path)
            for status in errors:
                assert "application/problem+json" in operation["responses"][status]["content"]
