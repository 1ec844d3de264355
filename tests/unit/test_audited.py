"""Every operation of every service that changes something has exactly one line in the audit log.

The table is made from the OpenAPI documents, so that a new operation is in it by itself.
"""

import logging
from typing import Any

import pytest

from packhorse.runtime import audit
from packhorse.runtime.audit import RefusalLimit, outcome_of
from tests.harness.operations import OPERATION_IDS, OPERATIONS, Operation, send

CHANGES = [one for one in OPERATIONS if one[1] not in ("GET", "HEAD", "OPTIONS")]


@pytest.fixture(autouse=True)
def _unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_limit", RefusalLimit())


def line_of(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    [found] = [vars(record) for record in caplog.records if record.name == audit.LOGGER]
    caplog.clear()
    return found


@pytest.mark.parametrize("operation", CHANGES, ids=lambda one: " ".join(one[:3]))
def test_a_change_and_its_refusals_have_one_line_each(
    operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    service, method, path, scope = operation
    caplog.set_level(logging.INFO, audit.LOGGER)
    for token, caller in ((None, ""), ("none", "caller"), (scope, "caller")):
        answer = send(service, method, path, token)
        line = line_of(caplog)
        assert (line["caller"], line["status"]) == (caller, answer.status_code)
        assert line["outcome"] == outcome_of(answer.status_code)
        assert (line["method"], line["operation"]) == (method, OPERATION_IDS[operation])
        assert line["object"].startswith(path.partition("{")[0])


def test_the_table_holds_changes_of_every_kind() -> None:
    assert {one[1] for one in CHANGES} == {"POST", "PUT", "PATCH", "DELETE"}
    assert {one[0] for one in CHANGES} >= {"publisher", "content", "cleanup", "topology", "jobs"}
