"""`packhorse get instances` and `packhorse topology watch`: what they show."""

import json
from typing import Any

import pytest

from packhorse.client.following import Gap, StreamEvent
from packhorse_services.cli import topology
from packhorse_services.cli.client.views import Format
from tests.harness.scripted_client import ScriptedClient


def instance(name: str, *, leader: bool = False, **properties: str) -> dict[str, Any]:
    return {
        "id": name,
        "cluster_id": "c1",
        "leader": leader,
        "local": leader,
        "properties": {key.replace("_", "."): value for key, value in properties.items()},
    }


def document(*instances: dict[str, Any], current: bool = True) -> dict[str, Any]:
    cluster = {"id": "c1", "local": True, "leader": "one", "instances": list(instances)}
    return {"current": current, "local_instance": "one", "clusters": [cluster]}


class Service(ScriptedClient):
    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(lambda _: answer)


def shown(
    capsys: pytest.CaptureFixture[str], form: Format, answer: dict[str, Any]
) -> tuple[str, str]:
    topology._show(Service(answer), form)
    said = capsys.readouterr()
    return said.out, said.err


RUNS = {"packhorse_host": "m1", "packhorse_pid": "42", "packhorse_home": "/srv"}
SAYS = {"packhorse_role": "publisher", "packhorse_agent": "main", "rack": "7"}
ONE = instance("one", leader=True, **SAYS, **RUNS)
TWO = instance("two", packhorse_role="cleanup", note="\x1b[2Jhidden [bold]")


def test_a_table_has_role_and_agent_and_the_wide_one_everything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    header, first, second = shown(capsys, Format.TABLE, document(ONE, TWO))[0].splitlines()
    assert header.split() == ["INSTANCE", "CLUSTER", "LEADER", "ROLE", "AGENT", "ENDPOINT"]
    assert first.split() == ["one", "c1", "yes", "publisher", "main", "-"]
    assert second.split() == ["two", "c1", "no", "cleanup", "-", "-"]
    wide = shown(capsys, Format.WIDE, document(ONE, TWO))[0]
    assert "HOST PID HOME" in " ".join(wide.split())
    assert "m1 42 /srv" in " ".join(wide.split())
    assert "rack=7" in wide
    assert "\x1b" not in wide
    assert "[2Jhidden [bold]" in wide


def test_what_is_not_current_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(capsys, Format.TABLE, document(ONE, current=False))
    assert "one" in out
    assert "the topology is changing" in err


def test_names_and_json_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, Format.NAME, document(ONE, TWO))[0].split() == ["one", "two"]
    assert json.loads(shown(capsys, Format.JSON, document(ONE))[0]) == document(ONE)


def event(name: str, **data: Any) -> StreamEvent:
    empty = {"added": [], "removed": [], "leaders": [], "changed": []}
    reported = {"time": "2026-01-02T03:04:05Z", "topology": document(ONE), **empty, **data}
    return StreamEvent(name, "0badcafe-7", reported)


@pytest.mark.parametrize(
    ("reported", "ends"),
    [
        (event("INIT"), "c1: one (leader)"),
        (event("CHANGING", topology=None), "the last view holds no more"),
        (event("CHANGED"), "the same instances"),
        (
            event(
                "CHANGED",
                added=["two"],
                removed=["three"],
                leaders=[{"cluster_id": "c1", "old": "three", "new": "one"}],
            ),
            "+two, -three, one leads c1",
        ),
        (event("PROPERTIES_CHANGED", changed=["two"]), "two has other properties"),
        (Gap("gap", "", {"reason": "FORGOTTEN"}), "events are lost (FORGOTTEN); "),
        (StreamEvent("LATER", "", ["new"]), 'LATER  ["new"]'),
        (event("CHANGED", added=["\x1b[2J"]), "+\\x1b[2J"),
    ],
)
def test_each_event_is_a_line(reported: StreamEvent, ends: str) -> None:
    line = topology._SHOWN[Format.TABLE](reported)
    assert ends in line
    assert "\n" not in line
    if reported.id:
        assert line.startswith("2026-01-02T03:04:05Z")
        assert topology._SHOWN[Format.WIDE](reported).endswith("  0badcafe-7")
