"""Kafka as Spark's source: the journal's URL in the Java client's words, its rows as bronze's."""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.messaging.open import kafka_settings
from packhorse_services.pipeline.archive.times import plausible_columns
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.schemas import BRONZE

_SAME = frozenset(
    {"client.id", "ssl.key.password", "ssl.cipher.suites", "sasl.kerberos.service.name"}
)
_RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
    "socket.timeout.ms": "request.timeout.ms",
}
_FILES = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
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
    # More would be large objects for the JVM's collector; measured: a quarter more processor time.
    "kafka.max.partition.fetch.bytes": str(2 * 1024 * 1024),
    "kafka.max.poll.records": "2000",
    # As the product's own readers: everybody sees the same records (R1).
    "kafka.isolation.level": "read_uncommitted",
    "includeHeaders": "true",
    "failOnDataLoss": "true",
}


def client_options(url: str) -> dict[str, str]:
    """Return Spark's options for the brokers of `url`.

    Raises `TaskRefused` for a setting that the Java client has nothing for.
    """
    servers, settings = kafka_settings(url)
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
    """Take what concerns TLS out of the settings, and return it for Java: PEM, by its content."""
    found = {
        java: _content(name, settings.pop(name))
        for name, java in _FILES.items()
        if name in settings
    }
    found |= {java: settings.pop(name) for name, java in _TEXTS.items() if name in settings}
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
    spark: SparkSession,
    url: str,
    identities: Mapping[str, str],
    starting: str,
    *,
    max_offsets: int,
    tasks: int,
) -> DataFrame:
    """Return the topics that `identities` names as a stream with the columns of bronze.

    `starting` tells by JSON where a query without a checkpoint begins.
    """
    options = {**_READING, **client_options(url)}
    options |= {"subscribe": ",".join(identities), "startingOffsets": starting}
    options |= {"maxOffsetsPerTrigger": str(max_offsets), "minPartitions": str(tasks)}
    return as_bronze(spark.readStream.format("kafka").options(**options).load(), identities)


def as_bronze(records: DataFrame, identities: Mapping[str, str]) -> DataFrame:
    """Return Kafka's records in the columns of bronze, as the product's own reader tells them.

    What is null is empty, but for the key; a key that is no UTF-8 has replacement characters.
    """
    pairs = [part for pair in identities.items() for part in map(f.lit, pair)]
    time, headers = plausible_columns(f.col("timestamp"), _headers())
    return records.select(
        "topic",
        "partition",
        "offset",
        time.alias("time"),
        f.element_at(f.create_map(*pairs), f.col("topic")).alias("journal_id"),
        f.to_date(time).alias("day"),
        f.make_valid_utf8(f.col("key").cast("string")).alias("key"),
        headers.alias("headers"),
        f.coalesce("value", f.lit(b"")).alias("value"),
    )


def _headers() -> Column:
    header = f.struct  # one for each name and value
    return f.coalesce(
        f.transform(
            "headers",
            lambda one: header(
                one["key"].alias("key"),
                f.coalesce(one["value"], f.lit(b"")).alias("value"),
            ),
        ),
        f.array().cast(BRONZE["headers"].dataType),
    )
