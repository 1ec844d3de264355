"""Kafka as Spark's source: the journal's URL in the Java client's words."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession

from packhorse.messaging.open import kafka_settings
from packhorse_services.pipeline.errors import TaskRefused

_SAME = frozenset(
    {"client.id", "ssl.key.password", "ssl.cipher.suites", "sasl.kerberos.service.name"}
)
_RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
    "socket.timeout.ms": "request.timeout.ms",
}
_FILES = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
_TEXTS = {
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
_OF_WRITERS = ("linger.ms", "batch.", "queue.buffering.", "compression.", "message.max.bytes")
"""Settings of librdkafka that mean nothing to who only reads."""

_LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_READING = {
    # As the product's own readers: everybody sees the same records (R1).
    "kafka.isolation.level": "read_uncommitted",
    "failOnDataLoss": "true",
    "includeHeaders": "true",
}


def self_contained(url: str) -> str:
    """Return the journal's URL with what its files hold: an executor has none of them.

    Raises `TaskRefused` when one can't be read.
    """
    if not url.startswith("kafka://"):
        return url
    servers, settings = kafka_settings(url)
    pairs = (
        (_FILES[name], _content(name, value)) if name in _FILES else (name, value)
        for name, value in settings.items()
    )
    query = "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in pairs)
    return f"kafka://{servers}?{query}" if query else f"kafka://{servers}"


def client_options(url: str) -> dict[str, str]:
    """Return Spark's options for the brokers of `url`.

    Raises `TaskRefused` for a setting that the Java client has nothing for.
    """
    servers, settings = kafka_settings(self_contained(url))
    options = {"bootstrap.servers": servers}
    options |= _login(settings) | _encryption(settings)
    for name, value in settings.items():
        if name in _SAME or name in _RENAMED:
            options[_RENAMED.get(name, name)] = value
        elif not name.startswith(_OF_WRITERS):
            raise TaskRefused(
                f"the archive can't pass {name} on to Spark; leave it out of the journal's URL"
            )
    return {f"kafka.{name}": value for name, value in options.items()}


def _login(settings: dict[str, str]) -> dict[str, str]:
    """Take user and password out of the settings, and return who logs in how."""
    user, password = settings.pop("sasl.username", None), settings.pop("sasl.password", None)
    if user is None and password is None:
        return {}
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    module = _LOGINS.get(mechanism)
    if module is None or user is None or password is None:
        raise TaskRefused(
            "the archive logs in to Kafka with sasl.mechanism PLAIN, SCRAM-SHA-256 or "
            "SCRAM-SHA-512, sasl.username and sasl.password; the journal's URL lacks one of them"
        )
    return {
        "sasl.jaas.config": f"{module} required username={_quoted(user)} "
        f"password={_quoted(password)};"
    }


def _encryption(settings: dict[str, str]) -> dict[str, str]:
    """Take what concerns TLS out of the settings, and return it for Java."""
    found = {java: settings.pop(name) for name, java in _TEXTS.items() if name in settings}
    if protocol := settings.pop("security.protocol", ""):
        found["security.protocol"] = protocol.upper()
    for store, part in (("truststore", "certificates"), ("keystore", "key")):
        if f"ssl.{store}.{part}" in found:
            found[f"ssl.{store}.type"] = "PEM"
    check = settings.pop("ssl.endpoint.identification.algorithm", None)
    if check is not None:
        found["ssl.endpoint.identification.algorithm"] = "" if check == "none" else check
    return found


def _content(name: str, path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskRefused(f"{name} names a file that can't be read: {error}") from error


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def kafka_stream(
    spark: SparkSession, url: str, topics: Iterable[str], options: Mapping[str, str]
) -> DataFrame:
    """Return the topics as a stream of what `reading.from_kafka` takes."""
    named = {"subscribe": ",".join(topics), **_READING, **client_options(url), **options}
    return spark.readStream.format("kafka").options(**named).load().drop("timestampType")
