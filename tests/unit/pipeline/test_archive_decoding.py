"""Records as the services write them become rows of silver, and everything else a reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.wire.command_codec import encode_command
from packhorse.wire.messages import PackageBody, ResetCommand
from packhorse.wire.package_codec import encode_package
from packhorse.wire.record import Undecodable
from packhorse.wire.topics import Topics
from packhorse_services.pipeline.archive.decoding import decoded
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import SILVER
from tests.harness.archive import of_everything, package

TOPICS = Topics()


def test_every_message_fills_exactly_the_columns_of_its_table() -> None:
    seen = set()
    for topic, _, encoded in of_everything(range(3), TOPICS):
        table, row = decoded(TOPICS, topic, encoded.headers, encoded.value)
        place = {"topic", "partition", "offset", "time", "journal_id", "day"}
        assert {*row} == {field.name for field in SILVER[table].fields} - place
        seen.add(table)
    assert seen == {*SILVER} - {tables.QUARANTINE}


def test_a_package_keeps_where_its_body_is() -> None:
    body = PackageBody(b"\x01" * 32, 99, reference="packages/ab/x-ab")
    encoded = encode_package(package(7, body, 33))
    table, row = decoded(TOPICS, TOPICS.package, encoded.headers, encoded.value)
    assert table == tables.PACKAGES
    assert row["body_sha256"] == "01" * 32
    assert (row["body_length"], row["content_length"]) == (33, 99)
    assert row["body_reference"] == "packages/ab/x-ab"


def test_a_commands_kind_says_which_column_counts() -> None:
    encoded = encode_command(ResetCommand("c", "s", "main", 42))
    _, row = decoded(TOPICS, TOPICS.command, encoded.headers, encoded.value)
    assert (row["kind"], row["up_to"], row["desired"]) == ("RESET", 42, None)


def test_a_message_on_another_topic_is_none() -> None:
    encoded = encode_package(package(1))
    with pytest.raises(Undecodable, match="not one of ClearCommand"):
        decoded(TOPICS, TOPICS.command, encoded.headers, encoded.value)
    with pytest.raises(Undecodable, match="none of the five"):
        decoded(TOPICS, "elsewhere", encoded.headers, encoded.value)


@given(
    topic=st.sampled_from([TOPICS.package, TOPICS.status, TOPICS.discovery, TOPICS.event]),
    kind=st.sampled_from(
        [b"PackageMessage", b"StatusMessage", b"DiscoveryMessage", b"PackageDistributed", b"\xff"]
    ),
    value=st.binary(max_size=200),
)
def test_r30_whatever_the_bytes_there_is_a_row_or_a_reason(
    topic: str, kind: bytes, value: bytes
) -> None:
    try:
        table, _ = decoded(TOPICS, topic, {"message-type": kind, "message-version": b"1"}, value)
    except Undecodable:
        return
    assert table in SILVER
