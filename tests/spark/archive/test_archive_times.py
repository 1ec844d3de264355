"""Records whose senders said impossible times: a topic that somebody else made (R30)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from pyspark.sql import SparkSession

from packhorse.wire.package_codec import encode_package
from packhorse_services.pipeline.archive.reading import LATEST_MS, SAID
from packhorse_services.pipeline.storage import tables
from tests.harness.archive import DEADLINE_S, package
from tests.harness.archive_site import ArchiveSite, archive_site
from tests.harness.kafka.broker import RunningKafka

pytestmark = pytest.mark.spark

PLAUSIBLE = 1_700_000_000_000
YEAR_10000 = 253_402_300_800_000
MICROSECONDS = PLAUSIBLE * 1_000
NANOSECONDS = PLAUSIBLE * 1_000_000
"""More than Spark's own source of Kafka can represent."""


class Foreign:
    """The package topic of a site, whose times are what its senders say."""

    def __init__(self, broker: RunningKafka, site: ArchiveSite) -> None:
        self.site = site
        servers = {"bootstrap.servers": broker.url.removeprefix("kafka://")}
        self._producer = Producer(servers)
        changed = {
            "message.timestamp.type": "CreateTime",
            "message.timestamp.after.max.ms": str(2**63 - 1),
            "message.timestamp.before.max.ms": str(2**63 - 1),
        }
        topic = ConfigResource(ResourceType.TOPIC, site.topics.package)
        for name, value in changed.items():
            entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            topic.add_incremental_config(entry)
        client = AdminClient(servers)  # what it is asked for ends with it
        for done in client.incremental_alter_configs([topic]).values():
            done.result(DEADLINE_S)

    def append(self, number: int, time_ms: int) -> None:
        message = encode_package(package(number))
        self._producer.produce(
            self.site.topics.package,
            message.value,
            headers=dict(message.headers),
            timestamp=time_ms,
        )
        assert self._producer.flush(DEADLINE_S) == 0

    def kept(self) -> list[tuple[int, int, bytes | None]]:
        """Return of each record in bronze: offset, time, and what was said of that."""
        found = []
        for row in self.site.rows(tables.BRONZE):
            if row["topic"] == self.site.topics.package:
                headers = {one["key"]: bytes(one["value"]) for one in row["headers"]}
                assert row["day"] == row["time"].date()
                time_ms = round(row["time"].timestamp() * 1000)
                found.append((row["offset"], time_ms, headers.get(SAID)))
        return sorted(found)[1:]


@pytest.fixture
def foreign(spark: SparkSession, kafka: RunningKafka, tmp_path: Path) -> Iterator[Foreign]:
    with archive_site(spark, kafka.url, tmp_path) as site:
        site.fill([0], "package", "status")
        yield Foreign(kafka, site)


def test_r30_an_impossible_time_stops_nobody_and_stays_visible_whatever_spark_makes_of_it(
    foreign: Foreign,
) -> None:
    said = [PLAUSIBLE, YEAR_10000, MICROSECONDS, -1, -5_000, LATEST_MS]
    for number, time_ms in enumerate(said, start=1):
        foreign.append(number, time_ms)
    expected = [
        (1, PLAUSIBLE, None),
        (2, LATEST_MS, str(YEAR_10000).encode()),
        (3, LATEST_MS, str(MICROSECONDS).encode()),
        (4, 0, b"-1"),
        (5, 0, b"-5000"),
        (6, LATEST_MS, None),
    ]
    foreign.site.archive()
    foreign.site.require_equal_sets()
    assert foreign.kept() == expected
    assert foreign.site.places(tables.PACKAGES) == list(range(7))
    for number, time_ms in enumerate([PLAUSIBLE, NANOSECONDS, MICROSECONDS], start=7):
        foreign.append(number, time_ms)
    foreign.site.archive()  # the last record is compared with the journal's
    assert foreign.kept() == [
        *expected,
        (7, PLAUSIBLE, None),
        (8, LATEST_MS, str(NANOSECONDS).encode()),
        (9, LATEST_MS, str(MICROSECONDS).encode()),
    ]
    foreign.append(10, PLAUSIBLE)
    foreign.site.archive()
    foreign.site.require_equal_sets()
    assert foreign.site.places(tables.PACKAGES) == list(range(11))
