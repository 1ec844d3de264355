"""What a cluster keeps of what it hears: by the database's clock, and rewritten only on news."""

import psycopg
import pytest

from packhorse.db.connect import connect
from packhorse.topology import announcement_store
from packhorse.topology.announcement_store import AnnouncementReader, TooManyPeers, forget, keep
from packhorse.topology.announcements import Announcement
from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.open import SqlRemoteClusters
from tests.harness.postgres import Databases
from tests.harness.topology.clusters import cluster

FAR = Announcement("far-1", cluster("far"))
CHANGED = Announcement("far-1", cluster("far", "far-1", "far-2"))


def _content_versions(connection: psycopg.Connection) -> list[tuple[str, str]]:
    """Postgres writes a large value anew only when it is set: `ctid` of its parts stays."""
    return connection.execute(
        "SELECT digest, changed_at::text FROM topology.announcement"
    ).fetchall()


def test_only_news_are_written(database_url: str) -> None:
    with connect(database_url, "tests", autocommit=True) as connection:
        assert keep(connection, FAR, "", "10.0.0.1", 60)
        before = _content_versions(connection)
        assert not keep(connection, FAR, "", "10.0.0.1", 60)
        assert _content_versions(connection) == before
        assert keep(connection, CHANGED, "", "10.0.0.1", 60)
        assert _content_versions(connection) != before


def test_what_has_run_out_is_gone_and_comes_back_as_news(database_url: str) -> None:
    reader = AnnouncementReader()
    with connect(database_url, "tests", autocommit=True) as connection:
        keep(connection, FAR, "", "10.0.0.1", 60)
        assert len(reader.read(connection).heard) == 1
        connection.execute("UPDATE topology.announcement SET expires_at = clock_timestamp()")
        assert reader.read(connection).heard == ()
        assert not forget(connection, "nobody", "")
        assert keep(connection, FAR, "", "10.0.0.1", 60)
        assert len(reader.read(connection).heard) == 1
        assert forget(connection, "far-1", "")
        assert not forget(connection, "far-1", "")


def test_both_directions_are_kept_apart(database_url: str) -> None:
    remotes = SqlRemoteClusters(database_url)
    with connect(database_url, "tests", autocommit=True) as connection:
        keep(connection, FAR, "", "10.0.0.1", 60)
        keep(connection, FAR, "me-1", "10.0.0.1", 60)
        forget(connection, "far-1", "")
        assert [one.id for one in remotes.clusters()] == ["far"]
        forget(connection, "far-1", "me-1")
        assert remotes.clusters() == ()


def test_what_nobody_understands_is_left_out(database_url: str) -> None:
    remotes = SqlRemoteClusters(database_url)
    with connect(database_url, "tests", autocommit=True) as connection:
        keep(connection, FAR, "", "10.0.0.1", 60)
        keep(connection, Announcement("new-1", cluster("new")), "", "10.0.0.2", 60)
        connection.execute(
            "UPDATE topology.announcement SET content = '{\"of\": \"tomorrow\"}', digest = 'x' "
            "WHERE owner = 'new-1'"
        )
        assert [one.id for one in remotes.clusters()] == ["far"]


def test_all_together_have_a_bound(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcement_store, "MAX_KEPT_BYTES", len(FAR.content()) + 10)
    with connect(database_url, "tests", autocommit=True) as connection:
        keep(connection, FAR, "", "10.0.0.1", 60)
        with pytest.raises(TooManyPeers):
            keep(connection, Announcement("b-1", cluster("b")), "", "10.0.0.1", 60)
        with pytest.raises(TooManyPeers):
            keep(connection, CHANGED, "", "10.0.0.1", 60)
        assert not keep(connection, FAR, "", "10.0.0.1", 60)


def test_a_database_that_is_away_is_asked_again(databases: Databases) -> None:
    url = databases.new("late")
    name = url.rpartition("/")[2].partition("?")[0]
    remotes = SqlRemoteClusters(url)
    assert remotes.clusters() == ()
    assert remotes.is_fresh()
    with psycopg.connect(databases.server.url(), autocommit=True) as server:
        server.execute(f'ALTER DATABASE "{name}" RENAME TO "{name}_away"')
        with pytest.raises(StoreUnavailable):
            remotes.clusters()
        assert not remotes.is_fresh()
        server.execute(f'ALTER DATABASE "{name}_away" RENAME TO "{name}"')
    assert remotes.clusters() == ()
