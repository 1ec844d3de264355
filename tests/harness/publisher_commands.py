"""Commands as an operator gives them to a publisher, and as a subscriber reports them."""

from typing import Any

from packhorse.messaging.api import Outgoing
from packhorse.wire.command_codec import decode_command, encode_command_status
from packhorse.wire.messages import Command, CommandState, CommandStatusMessage
from tests.harness.journals import everything
from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import AGENT, TOPICS


def commands(s: PublisherService) -> list[Command]:
    records = everything(s.author.journal, TOPICS.command)
    return [decode_command(record.headers, record.value) for record in records]


def report(s: PublisherService, command_id: str, state: CommandState, **more: Any) -> None:
    """Say what a subscriber would of a command."""
    known = {"subscriber": "sub1", "publisher_agent": AGENT, **more}
    encoded = encode_command_status(CommandStatusMessage(command_id, state=state, **known))
    record = Outgoing(encoded.value, encoded.headers)
    s.author.journal.append(TOPICS.status, record).result(120)


async def becomes(s: PublisherService, command_id: str, state: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def has() -> bool:
        found.update(await s.get(f"/commands/{command_id}"))
        return bool(found["state"] == state)

    await s.until(has)
    return found


async def put(s: PublisherService, action: str, name: str = "sub1") -> dict[str, Any]:
    answer = await s.client.put(f"/subscribers/{name}/{action}")
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/commands/{document['command_id']}"
    return document
