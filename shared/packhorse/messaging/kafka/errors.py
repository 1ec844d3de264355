"""librdkafka's errors in the journal's words."""

from confluent_kafka import KafkaError, KafkaException

from packhorse.errors import PackhorseError, Permanent
from packhorse.messaging.api import JournalUnavailable, topic_missing

_MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_ELSEWHERE = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,
    }
)
_REFUSED = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._AUTHENTICATION,
    }
)

_DAMAGED = frozenset({KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG})


class KafkaRefused(Permanent):
    """Kafka will not do this for this user or with these values; the text has its reason."""


def is_missing(error: KafkaError) -> bool:
    """Return whether `error` says that the topic or partition does not exist."""
    return error.code() in _MISSING


def is_damage(error: KafkaError) -> bool:
    """Return whether `error` says that records fail their checksum, or can't be unpacked."""
    return error.code() in _DAMAGED


def leads_elsewhere(error: BaseException | None) -> bool:
    """Return whether `error` says that the client asked a broker which no longer leads."""
    return isinstance(error, KafkaException) and error.args[0].code() in _ELSEWHERE


def is_forbidden(error: KafkaError) -> bool:
    """Return whether `error` says that this login lacks a right on the topic."""
    return error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def forbidden(topic: str, operation: str) -> str:
    """Return what is missing, and what the operator of the broker does about it."""
    return (
        f"Kafka does not allow this login to {operation.lower()} {topic}; grant it with kafka-acls "
        f"--add --allow-principal User:… --operation {operation} --topic {topic} "
        "(docs/security.md has what each program needs)"
    )


def translated(
    error: KafkaError | KafkaException, topic: str, complaint: str = "", operation: str = "Read"
) -> PackhorseError:
    """Return what a failed question about `topic` means; raise it `from` the original.

    `complaint` is what librdkafka last said of the connection, to be reported when that is away;
    `operation` the right that the question needs.
    """
    cause = error.args[0] if isinstance(error, KafkaException) else error
    if is_missing(cause):
        return topic_missing(topic)
    if is_forbidden(cause):
        return KafkaRefused(forbidden(topic, operation))
    if cause.code() in _REFUSED:
        return KafkaRefused(
            f"Kafka refuses this for {topic}: {cause.str()}; check the user's rights and the values"
        )
    return JournalUnavailable(
        f"Kafka did not answer about {topic}: {cause.str()}{complaint}; try again"
    )
