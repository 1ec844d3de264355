"""The journal's URL in the words of Java's Kafka client."""

from pathlib import Path

import pytest

from packhorse.messaging.open import kafka_settings
from packhorse_services.pipeline.archive.kafka_source import client_options, self_contained
from packhorse_services.pipeline.errors import TaskRefused


def test_brokers_alone() -> None:
    assert client_options("kafka://a:1,b:2") == {"kafka.bootstrap.servers": "a:1,b:2"}


def test_login_and_encryption(tmp_path: Path) -> None:
    authority, password = tmp_path / "ca.pem", tmp_path / "password"
    authority.write_text("-----BEGIN CERTIFICATE-----")
    password.write_text('pa"ss\n')
    options = client_options(
        "kafka://a:1?security.protocol=sasl_ssl&sasl.mechanism=SCRAM-SHA-512&sasl.username=ann"
        f"&sasl.password.file={password}&ssl.ca.location={authority}&linger.ms=5"
    )
    assert options == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
        'required username="ann" password="pa\\"ss";',
        "kafka.ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
        "kafka.ssl.truststore.type": "PEM",
    }


def test_a_clients_own_certificate(tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text("chain")
    key.write_text("key")
    options = client_options(
        f"kafka://a:1?security.protocol=ssl&ssl.certificate.location={chain}"
        f"&ssl.key.location={key}&ssl.key.password=p&ssl.endpoint.identification.algorithm=none"
    )
    assert options["kafka.ssl.keystore.certificate.chain"] == "chain"
    assert options["kafka.ssl.keystore.key"] == "key"
    assert options["kafka.ssl.keystore.type"] == "PEM"
    assert options["kafka.ssl.key.password"] == "p"
    assert options["kafka.ssl.endpoint.identification.algorithm"] == ""


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("enable.ssl.certificate.verification=false", "enable.ssl.certificate.verification"),
        ("sasl.mechanism=GSSAPI&sasl.username=a&sasl.password=b", "sasl.mechanism PLAIN"),
        ("sasl.mechanism=PLAIN&sasl.username=a", "lacks one of them"),
        ("ssl.ca.location=/nowhere", "can't be read"),
    ],
)
def test_what_java_has_nothing_for_is_refused(query: str, named: str) -> None:
    with pytest.raises(TaskRefused, match=named):
        client_options(f"kafka://a:1?{query}")


def test_a_task_elsewhere_needs_no_file_of_the_driver(tmp_path: Path) -> None:
    authority, password = tmp_path / "ca.pem", tmp_path / "password"
    authority.write_text("-----BEGIN\nCERTIFICATE & more-----\n")
    password.write_text("pa&ss=%\n")
    url = self_contained(
        "kafka://a:1,b:2?security.protocol=sasl_ssl&sasl.username=ann"
        f"&sasl.password.file={password}&ssl.ca.location={authority}"
    )
    assert str(tmp_path) not in url
    servers, settings = kafka_settings(url)
    assert servers == "a:1,b:2"
    assert settings == {
        "security.protocol": "sasl_ssl",
        "sasl.username": "ann",
        "sasl.password": "pa&ss=%",
        "ssl.ca.pem": "-----BEGIN\nCERTIFICATE & more-----\n",
    }
    assert self_contained(url) == url


@pytest.mark.parametrize("url", ["kafka://a:1", "postgresql://ann:secret@a/journal?x=1"])
def test_a_url_without_files_stays_as_it_is(url: str) -> None:
    assert self_contained(url) == url
