"""What a `kafka://` URL may say, and what it must not."""

from pathlib import Path

import pytest

from packhorse.messaging.kafka.address import BadKafkaUrl, parse_address
from packhorse.messaging.open import open_journal


def test_brokers_alone() -> None:
    address = parse_address("kafka://one:9092,two:9093")
    assert (address.servers, dict(address.settings)) == ("one:9092,two:9093", {})
    assert address.delivery_seconds == 30


def test_any_setting_of_librdkafka_is_passed_on() -> None:
    address = parse_address(
        "kafka://broker:9092/?security.protocol=SASL_SSL&ssl.ca.location=%2Fetc%2Fca.pem"
        "&sasl.password=a%26b+c%25&compression.type=lz4"
    )
    assert dict(address.settings) == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/etc/ca.pem",
        "sasl.password": "a&b+c%",
        "compression.type": "lz4",
    }


def test_a_secret_is_read_from_a_file_and_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("hush\n")
    address = parse_address(f"kafka://broker:9092?sasl.password.file={secret}")
    assert address.settings["sasl.password"] == "hush"
    assert "hush" not in repr(address)


def test_the_delivery_time_out_is_ours() -> None:
    address = parse_address("kafka://broker:9092?delivery.timeout.ms=1500")
    assert (address.delivery_seconds, dict(address.settings)) == (1.5, {})


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("kafka://", "kafka://host:port"),
        ("kafka://user:hush@broker:9092", "sasl.username"),
        ("kafka://broker:9092/topic", "kafka://host:port"),
        ("kafka://broker:9092?acks=1", "acks"),
        ("kafka://broker:9092?auto.offset.reset=latest", "auto.offset.reset"),
        ("kafka://broker:9092?enable.idempotence=false", "enable.idempotence"),
        ("kafka://broker:9092?message.timeout.ms=1", "message.timeout.ms"),
        ("kafka://broker:9092?delivery.timeout.ms=0", "delivery.timeout.ms"),
        ("kafka://broker:9092?delivery.timeout.ms=soon", "delivery.timeout.ms"),
        ("kafka://broker:9092?linger.ms", "linger.ms"),
        ("kafka://broker:9092?sasl.password.file=/no/such/file", "sasl.password.file"),
    ],
)
def test_what_can_not_be_used_is_named(url: str, word: str) -> None:
    with pytest.raises(BadKafkaUrl, match=word) as refused:
        parse_address(url)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("setting", ["no.such.setting=1", "linger.ms=often", "stats_cb=x"])
def test_a_setting_that_librdkafka_refuses_is_reported_at_the_opening(setting: str) -> None:
    with pytest.raises(BadKafkaUrl):
        open_journal(f"kafka://127.0.0.1:1?{setting}", client_name="test")
