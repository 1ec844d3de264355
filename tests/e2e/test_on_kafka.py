"""The programs on Kafka, once through all of them; `make chaos` runs more of e2e on it."""

from collections.abc import Iterator

import pytest

from tests.harness.kafka.broker import RunningKafka
from tests.harness.postgres import Databases
from tests.harness.site import Site, site
from tests.harness.waiting import eventually

IMPATIENT = {"backoff_first_s": 0.1, "backoff_longest_s": 0.2, "announce_s": 1}

pytestmark = pytest.mark.kafka


@pytest.fixture
def on_kafka(databases: Databases, kafka: RunningKafka) -> Iterator[Site]:
    with site(databases, kafka.url) as built:
        built.subscriber("wide")
        built.subscriber("narrow", editable=True, import_roots="/open", **IMPATIENT)
        built.start()
        yield built


def test_r1_content_arrives_in_order_through_a_kill_and_a_clearing(on_kafka: Site) -> None:
    for number in range(3):
        on_kafka.put(f"/open/{number}", properties={"number": number})
    on_kafka.distribute_everywhere(deep=["/open"])
    assert len(set(on_kafka.hashes("/open").values())) == 1

    on_kafka.put("/closed")
    refused = on_kafka.distribute("/closed")
    eventually(lambda: on_kafka.queue("narrow")["state"] == "BLOCKED", what="it is blocked")
    on_kafka.publisher.kill()
    on_kafka.publisher.start()
    on_kafka.publisher.ready()
    on_kafka.remove("/open/0")
    behind = on_kafka.distribute(deep=["/open"])
    assert behind["offset"] > refused["offset"]
    cleared = on_kafka.clear("narrow", up_to_offset=refused["offset"])
    assert cleared.status_code == 202, cleared.text
    became = on_kafka.everywhere(behind)["subscribers"]
    assert {one["state"] for one in became} == {"IMPORTED"}
    assert len(set(on_kafka.hashes("/open").values())) == 1
    assert on_kafka.at("narrow", "/closed") is None
    assert on_kafka.at("wide", "/closed") is not None
