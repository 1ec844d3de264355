"""Which of the admin client's requests the Kafka journal sends (ADR 0050, 0064)."""

import ast
from pathlib import Path

from packhorse.messaging import kafka

SET_UP = {"create_topics", "delete_records", "describe_configs", "incremental_alter_configs"}
"""Of commands that set topics up, of an operator's for what is kept, and of the first append."""
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
