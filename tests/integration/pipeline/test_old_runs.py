"""What audits and marks have left goes with its day, on S3 as in a folder."""

from datetime import date
from pathlib import Path

import pytest

from packhorse_services.pipeline.storage import arrow_files, schemas
from packhorse_services.pipeline.storage.delta import opened, prepare
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.upkeep.task import forget_runs
from tests.harness.s3 import S3Server

DAY = date(2026, 1, 1)
MIDNIGHT_MS = 1_767_225_600_000
OLD, YOUNG = (f"audit/audit-{MIDNIGHT_MS - before}-0123abcd" for before in (1, 0))


@pytest.mark.parametrize("url", ["", pytest.param("s3", marks=pytest.mark.s3)])
def test_what_old_runs_have_left_goes_and_nothing_else(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if url:
        server: S3Server = request.getfixturevalue("s3")
        url = server.url("runs")
    location = Location.parse(url or str(tmp_path))
    assert forget_runs(location, DAY) == 0
    for folder in (OLD, YOUNG, "audit/mine", "marks/mark-1-00000000"):
        prepare(location, {f"{folder}/t": schemas.GAPS})
    assert forget_runs(location, DAY) == 2
    assert forget_runs(location, DAY) == 0
    assert opened(location, f"{OLD}/t") is None
    assert opened(location, f"{YOUNG}/t") is not None
    assert sorted(arrow_files.names(location, "audit")) == sorted(["mine", YOUNG[6:]])
    assert not any(arrow_files.names(location, "marks"))
