"""An audit of subscribers that go on importing, and of an archive that is a little behind."""

import threading

import pytest

from packhorse.content.node import Node
from packhorse_services.pipeline.audit.repository import Repository
from packhorse_services.pipeline.errors import NotYet
from tests.harness.feed import page
from tests.harness.history import archive
from tests.spark.audit.audited_site import Site, reported

pytestmark = pytest.mark.spark


def test_the_archive_is_waited_for_by_who_is_ahead_of_it_and_equal_json_in_other_words_is_equal(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.history.add(Node("/late", "page", '{"b" : 1,   "a": 2}'))
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


def test_what_nobody_has_archived_is_archived_once_for_subscribers_that_go_on(site: Site) -> None:
    late = site.history.add(page("/late", 1))
    site.subscriber("damaged").execute("DELETE FROM content.node WHERE path = '/deep/x'")
    busy = site.subscriber("busy")
    runs: list[int] = []

    def rest() -> None:
        runs.append(late)
        archive(site.location, site.history.records[-1:])
        busy.execute("UPDATE bookkeeping.position SET log_offset = log_offset + 100")
        busy.execute("DELETE FROM content.node")

    equal, damaged = site.audit("busy", "damaged", archive=rest)
    assert (runs, site.folds) == ([late], 1)
    assert (equal.offsets, reported(equal)) == ({"main": late}, set())
    assert [(one.kind, one.path) for one in damaged.findings] == [("missing", "/deep/x")]


def test_who_is_ahead_is_not_compared_while_another_archive_is_at_work(site: Site) -> None:
    site.history.add(page("/late", 1))
    site.subscriber("ahead")

    def elsewhere() -> None:
        raise NotYet("another run of the archive is at work")

    [audited] = site.audit("ahead", archive=elsewhere)
    assert "ahead of the archive" in audited.problem
    assert "another run of the archive is at work" in audited.problem


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
