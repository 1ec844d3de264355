"""What is in the journal is in the archive, raw and decoded, once."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from packhorse.blobs.api import package_key
from packhorse.blobs.open import open_blobs
from packhorse.wire.messages import PackageBody
from packhorse.wire.package_codec import encode_package
from packhorse.wire.record import Encoded
from packhorse_services.pipeline.archive.silver import MISSING
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import SILVER
from tests.harness.archive import append, package, package_id
from tests.harness.archive_site import ArchiveSite, archive_site, journal_url

pytestmark = pytest.mark.spark

BODY = os.urandom(300_000)
KEPT, GONE, FOREIGN = 10, 11, 12
UNDECODABLE = (
    Encoded({}, b"no message"),
    Encoded({"message-type": b"PackageMessage", "message-version": b"1"}, b"\xff\xff"),
    Encoded({"message-type": b"PackageMessage", "message-version": b"9"}, b""),
)


def by_reference(site: ArchiveSite, number: int, key: str) -> None:
    """Append a package whose body is the blob `key`."""
    digest = hashlib.sha256(BODY).digest()
    body = PackageBody(digest, len(BODY), reference=key)
    message = encode_package(package(number, body, len(BODY)))
    append(site.journal, [(site.topics.package, None, message)])


@pytest.fixture(scope="module", params=["sql", "kafka"])
def site(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ArchiveSite]:
    """A site whose journal has some of everything and is archived, in two runs of small batches."""
    with archive_site(spark, journal_url(request), tmp_path_factory.mktemp("archive")) as found:
        found.fill(range(10))
        found.blobs.put(package_key(package_id(KEPT)), [BODY])
        by_reference(found, KEPT, package_key(package_id(KEPT)))
        by_reference(found, GONE, package_key(package_id(GONE)))
        by_reference(found, FOREIGN, package_key(package_id(KEPT)))
        append(found.journal, [(found.topics.package, None, one) for one in UNDECODABLE])
        found.archive(max_offsets=60)
        found.fill(range(20, 25))
        found.archive()
        yield found


def test_bronze_is_the_journal(site: ArchiveSite) -> None:
    site.require_equal_sets()
    first = next(row for row in site.rows(tables.BRONZE) if row["topic"] == site.topics.command)
    assert first["journal_id"] == site.journal.identity(site.topics.command)
    record = site.journal.read_at(first["topic"], first["offset"], first["partition"])
    assert record is not None
    assert first["key"] == record.key
    assert {one["key"]: bytes(one["value"]) for one in first["headers"]} == record.headers
    assert int(first["time"].timestamp() * 1000) == record.time_ms
    assert first["day"] == first["time"].date()


def test_silver_has_each_record_in_the_table_of_its_kind(site: ArchiveSite) -> None:
    found = {table: len(site.rows(table)) for table in SILVER}
    assert found == {
        tables.QUARANTINE: len(UNDECODABLE) + 2,
        tables.PACKAGES: 18,
        tables.STATUSES: 15,
        tables.COMMAND_STATUSES: 15,
        tables.ANNOUNCEMENTS: 15,
        tables.COMMANDS: 15,
        tables.EVENTS: 15,
    }
    assert {row["package_id"] for row in site.rows(tables.PACKAGES)} >= {package_id(3)}
    assert {row["kind"] for row in site.rows(tables.COMMANDS)} == {"CLEAR", "CONTROL", "RESET"}
    assert {row["subscriptions"][0]["state"] for row in site.rows(tables.ANNOUNCEMENTS)} == {"IDLE"}


def test_what_nobody_decodes_is_kept_with_the_reason(site: ArchiveSite) -> None:
    found = {row["offset"]: row for row in site.rows(tables.QUARANTINE)}
    refused = [found[offset] for offset in (13, 14, 15)]
    assert [bytes(row["value"]) for row in refused] == [one.value for one in UNDECODABLE]
    assert "is of type ''" in refused[0]["reason"]
    assert "no PackageMessage" in refused[1]["reason"]
    assert "a version this build does not know" in refused[2]["reason"]


def test_bodies_by_reference_are_kept_or_noted(site: ArchiveSite) -> None:
    kept = open_blobs(site.location.blobs_url(tables.BODIES))
    assert b"".join(kept.get(package_key(package_id(KEPT)))) == BODY
    assert [blob.key for blob in kept.list("packages/")] == [package_key(package_id(KEPT))]
    noted = {row["offset"]: row["reason"] for row in site.rows(tables.QUARANTINE)}
    assert noted[GONE].startswith(MISSING)
    assert "no longer in the blob store" in noted[GONE]
    assert "not its own" in noted[FOREIGN]


def test_one_more_run_changes_nothing(site: ArchiveSite) -> None:
    before = {table: sorted(map(str, site.rows(table))) for table in (tables.BRONZE, *SILVER)}
    site.archive()
    assert {table: sorted(map(str, site.rows(table))) for table in before} == before


def test_a_folder_of_tables_is_made_for_spark_and_for_delta_rs(site: ArchiveSite) -> None:
    assert (Path(site.tables_url) / tables.GAPS / "_delta_log").is_dir()
