"""The jobs service as the command line sees it, with answers that a test says."""

from typing import Any

from tests.harness.scripted_client import ScriptedClient


def job(number: int, state: str = "QUEUED", **fields: Any) -> dict[str, Any]:
    return {
        "number": number,
        "topic": "images/thumbnail",
        "id": None,
        "queue": "main",
        "state": state,
        "attempts": 0,
        "instance": None,
        "stop_requested": False,
        "progress": {"step": 0, "steps": 0, "eta": None, "message": ""},
        "result_message": "",
        "past_attempts": [],
        "log": [],
        **fields,
    }


class Service(ScriptedClient):
    """Answers what the test says, and remembers what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        super().__init__(lambda _: self.answers.pop(0))

    @property
    def requested(self) -> list[tuple[str, Any]]:
        return self.sent()
