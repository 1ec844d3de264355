"""A limit of a topic that is lowered while others write to it."""

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.harness.journals import DEADLINE_S
from tests.harness.kafka.broker import RunningKafka
from tests.harness.waiting import eventually


def lower_largest_batch(kafka: RunningKafka, topic: str) -> None:
    """Change the topic behind the journal's back: the broker's own refusal is fatal."""
    entry = ConfigEntry("max.message.bytes", "300000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (altered,) = client.incremental_alter_configs([resource]).values()
    altered.result(DEADLINE_S)
    eventually(lambda: _refuses(kafka, topic, b"x" * 400_000), "the broker knows its new limit")


def _refuses(kafka: RunningKafka, topic: str, value: bytes) -> bool:
    """Whether the broker refuses a record of somebody whose client would send it."""
    refusals: list[KafkaError | None] = []
    foreign = Producer({"bootstrap.servers": kafka.bootstrap})
    foreign.produce(topic, value, on_delivery=lambda error, _: refusals.append(error))
    assert foreign.flush(DEADLINE_S) == 0
    return any(error and error.code() == KafkaError.MSG_SIZE_TOO_LARGE for error in refusals)
