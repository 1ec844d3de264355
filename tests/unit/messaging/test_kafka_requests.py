"""Which of the admin client's requests the Kafka journal sends (ADR 0050, 0064), and answers."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from packhorse.messaging import kafka
from packhorse.messaging.kafka.inquiry import Inquiry

SET_UP = {"create_topics", "delete_records", "describe_configs", "incremental_alter_configs"}
"""Of commands that set topics up, for what is kept, and of the first append."""
ALL_THE_TIME = {"describe_topics"}
"""For the topic's id, which no other request returns."""
LOCAL = {"poll"}
"""Serves what librdkafka has to say; sends nothing."""


def test_no_other_request_of_the_admin_client_is_sent() -> None:
    """A new one has to be looked at first: librdkafka aborts where describe_cluster fails."""
    [folder] = kafka.__path__
    sent = {
        node.func.attr
        for path in Path(folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if ast.unparse(node.func.value).endswith(".client")
    }
    assert sent == SET_UP | ALL_THE_TIME | LOCAL


class AfterAStall:
    """Kafka's clients in one; the first metadata name no broker, as those of a fenced one do."""

    def __init__(self) -> None:
        self.answers = [{}, {}, {1: "a", 2: "b"}]

    def admin(self, on_error: Any) -> "AfterAStall":
        return self

    lookup = admin

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(brokers=self.answers.pop(0))


def test_set_up_waits_until_metadata_name_a_broker() -> None:
    """With none, topics without a replica would be asked for."""
    assert Inquiry(AfterAStall()).brokers() == 2  # type: ignore[arg-type]
