"""An audit of subscribers that go on importing, and of an archive that is a little behind."""

import threading

import pytest

from packhorse_services.pipeline.audit.repository import Repository
from tests.harness.feed import page
from tests.harness.history import archive
from tests.spark.audit.audited_site import Site, reported

pytestmark = pytest.mark.spark


def test_the_archive_is_waited_for_by_who_is_ahead_of_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.history.add(page("/late", 1))
    site.subscriber("in-use").execute("DELETE FROM content.node WHERE path = '/deep/x'")
    waits: list[float] = []

    def meanwhile(event: threading.Event, seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 2:
            archive(site.location, site.history.records[-1:])
        return event.is_set()

    monkeypatch.setattr(site.clock, "wait", meanwhile)
    [audited] = site.audit("in-use", wait=60)
    assert len(waits) == 2
    assert [(one.kind, one.path) for one in audited.findings] == [("missing", "/deep/x")]


def test_an_import_goes_on_during_an_audit_and_is_not_seen_by_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    importer = site.subscriber("busy")
    importer.execute("SET lock_timeout = '2s'")
    hashes, imported = Repository.hashes, threading.Event()

    def during(*arguments: object) -> object:
        with importer.transaction():
            importer.execute("SET LOCAL ROLE packhorse_importer")
            importer.execute("DELETE FROM content.node WHERE path >= '/deep'")
        imported.set()
        return hashes(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Repository, "hashes", during)
    [audited] = site.audit("busy")
    assert imported.is_set()
    assert reported(audited) == set()
    monkeypatch.undo()
    [audited] = site.audit("busy", path="/deep", limit=1)
    assert audited.counts == {"missing": 3, "extra": 0, "different": 0, "undecided": 0}
    assert len(audited.findings) == 1
    [audited] = site.audit("busy", path="/a")
    assert reported(audited) == set()
