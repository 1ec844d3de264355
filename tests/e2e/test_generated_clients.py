"""The clients to install make the main calls of a stack of `packhorse up`."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from packhorse.client.addresses import read_token
from packhorse.client.stack_folder import StackFolder
from tests.harness.client_runners import LANGUAGES, Runner, Told, running
from tests.harness.command_line import Up


@pytest.fixture(scope="module", params=LANGUAGES)
def program(request: pytest.FixtureRequest) -> Iterator[Runner]:
    with running(request.param) as runner:
        yield runner


class Stack:
    """Makes calls of one program, each at the service that it is for."""

    def __init__(self, up: Up, program: Runner) -> None:
        folder = StackFolder(up.data)
        self._running, self._program = folder.running(), program
        self._asked = {"token": read_token(folder.tokens), "patience": 60.0}

    def ask(self, service: str, call: str, **asked: Any) -> Any:
        told = self.told(service, call, **asked)
        assert told.status == 200, told
        return told.result

    def told(self, service: str, call: str, **asked: Any) -> Told:
        url = getattr(self._running, service)
        return self._program.call(call, **self._asked, url=url, **asked)

    def package_event(self, distribution: str) -> dict[str, Any]:
        """Return its event; who used the stack before has sent others."""
        found: dict[str, Any] = {"id": "p0-s0-e0", "data": {}}
        while found["data"].get("package_id") != distribution:
            after = {"path": "/events?types=package", "after": found["id"]}
            [found] = self.ask("publisher", "events", **after, count=1)
        return found


@pytest.fixture
def stack(up: Up, program: Runner) -> Stack:
    return Stack(up, program)


@pytest.fixture
def root() -> str:
    return f"/client {uuid.uuid4().hex[:8]}"


def test_content_is_written_distributed_and_cleared(stack: Stack, root: str) -> None:
    path = f"{root}/page"
    assert stack.ask("content", "put_node", path=path) == {"path": path}
    assert stack.ask("content", "node", path=path)["title"] == "One"
    sent = stack.ask("publisher", "distribute", path=path, key=root[-8:])
    again = stack.ask("publisher", "distribute", path=path, key=root[-8:])
    assert again == {"id": sent["id"], "repeated": True}
    event = stack.package_event(sent["id"])
    assert (event["kind"], event["gap"]) == ("package", False)
    assert (event["data"]["action"], event["data"]["paths"]) == ("ADD", [path])
    assert set(stack.ask("publisher", "queues")) >= {"sub1", "sub2", "sub3"}
    assert stack.ask("publisher", "errors", subscriber="sub1") == []
    cleared = stack.ask("publisher", "clear", subscriber="sub3", up_to=0)
    assert len(cleared["command_id"]) == 32
    missing = f"{root}/no such page"
    assert stack.told("publisher", "distribute", path=missing).status == 404


def test_a_producer_goes_on_where_it_was(stack: Stack, root: str) -> None:
    stack.ask("content", "put_node", path=root)
    asked = {"name": f"p-{root[-8:]}", "path": root, "repeatable": True}
    assert stack.ask("publisher", "produce", **asked, sequences=[1, 2]) == [False, False]
    assert stack.ask("publisher", "produce", **asked, sequences=[1, 2, 3]) == [False]


def test_a_job_is_added_once_and_found(stack: Stack, root: str) -> None:
    topic = f"clients/{root[-8:]}"
    added = stack.ask("jobs", "add_job", topic=topic, key=root[-8:])
    again = stack.ask("jobs", "add_job", topic=topic, key=root[-8:])
    assert again["number"] == added["number"]
    found = stack.ask("jobs", "job", number=added["number"])
    assert found == {"number": added["number"], "state": "QUEUED", "size": 3}
    assert stack.told("jobs", "job", number=2**40).status == 404


def test_the_topology_is_read(stack: Stack) -> None:
    assert sum(stack.ask("topology", "topology")["instances"]) >= 1
