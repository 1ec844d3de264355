"""What one service leaves in a table, as the library's functions give it to the others.

The owner's own code writes, in a real database; the functions of `packhorse.bookkeeping` and
`packhorse.content.scan` read, with the rights that their callers have.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection, Connection

from packhorse.blobs.api import package_key
from packhorse.bookkeeping import outbox_view, positions, stored_packages, subscriber_rows
from packhorse.bookkeeping.audit_rows import AuditRow
from packhorse.bookkeeping.positions import LoadedSnapshot, StoredDecision, StoredPosition
from packhorse.bookkeeping.subscriber_rows import AnnouncementRow
from packhorse.content import scan, tree
from packhorse.content.node import Binary, Node
from packhorse.content.parts import SubtreePart
from packhorse.db.connect import connect
from packhorse.db.engine import conninfo
from packhorse.db.metadata import BOOKKEEPER, EXPORTER, IMPORTER
from packhorse.db.roles import act_as
from packhorse.wire.messages import Status
from packhorse.wire.package_codec import decode_stored_package
from packhorse_services.subscriber.announce.statuses import Decision, record_statuses
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.position import Position, create, move
from tests.harness.memory_author import memory_author
from tests.harness.noise import noise
from tests.harness.publishing import Author, AwayJournal, page, publish, request

AGENT = "main"


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Iterator[Author]:
    nodes = page("/p0"), *(large(f"/big{number}") for number in range(2))
    with memory_author(database_url, tmp_path, *nodes) as author:
        yield author


def large(path: str) -> Node:
    return Node(path, "page", json.dumps({"noise": noise()}))


def publish_one(author: Author, path: str, *, away: bool = False) -> str:
    journal = AwayJournal(author.journal)
    journal.away = away
    [pending] = publish(author.replica(journal=journal), request(path))
    return pending.package_id


@contextmanager
def acting(database_url: str, role: str = BOOKKEEPER) -> Iterator[Connection]:
    with closing(connect(database_url, "tests")) as connection, connection:
        act_as(connection, role)
        yield connection


def test_r21_a_stored_package_has_an_offset_once_the_publisher_has_placed_it(
    author: Author,
) -> None:
    placed = package_key(publish_one(author, "/big0"))
    waiting = package_key(publish_one(author, "/big1", away=True))
    with acting(author.database_url) as connection:
        assert set(stored_packages.keys(connection)) == {placed, waiting}
        assert stored_packages.known(connection, [placed, "none"]) == {placed}
        [below] = stored_packages.below(connection, 1, 10)
        assert (below.key, below.log_offset) == (placed, 0)
        assert stored_packages.below(connection, 0, 10) == []
        assert stored_packages.count_kept(connection) == {"pending": 1, "in_log": 1}


def test_r21_a_package_on_its_way_is_not_taken_for_one_without_an_offset(author: Author) -> None:
    placed = package_key(publish_one(author, "/big0"))
    publish_one(author, "/big1", away=True)
    with acting(author.database_url) as connection:
        stored_packages.forget_offsets(connection)
        assert stored_packages.unplaced(connection, 10) == [placed]
        stored_packages.stamp(connection, [placed], 7)
        assert stored_packages.unplaced(connection, 10) == []
        stored_packages.stamp(connection, [placed], 9)
        assert [one.log_offset for one in stored_packages.below(connection, 99, 10)] == [7]
        stored_packages.place(connection, {placed: 3})
        assert [one.log_offset for one in stored_packages.below(connection, 99, 10)] == [3]
        stored_packages.forget(connection, [placed])
        assert stored_packages.below(connection, 99, 10) == []


def test_the_outbox_shows_what_is_committed_and_not_sent(author: Author) -> None:
    publish_one(author, "/p0")
    waiting = publish_one(author, "/big0", away=True)
    with acting(author.database_url) as connection:
        [message] = map(decode_stored_package, outbox_view.waiting(connection))
    assert message.entry.package_id == waiting
    publish_one(author, "/p0")
    with acting(author.database_url) as connection:
        assert list(outbox_view.waiting(connection)) == []


def test_r6_the_last_number_is_that_of_the_last_committed_package(author: Author) -> None:
    with acting(author.database_url) as connection:
        connection.execute("DELETE FROM bookkeeping.slot")
        assert outbox_view.last_number(connection) is None
        assert outbox_view.published_log(connection) == ""
    publish_one(author, "/p0")
    publish_one(author, "/p0", away=True)
    with acting(author.database_url) as connection:
        number = outbox_view.last_number(connection)
        log = outbox_view.published_log(connection)
    assert log == author.journal.identity(author.topics.package)
    [(epoch, sequence)] = author.rows(
        "SELECT epoch, sequence FROM bookkeeping.outbox ORDER BY 1 DESC, 2 DESC LIMIT 1"
    )
    assert number == (epoch, sequence)


def test_an_audited_position_is_the_one_that_the_importer_moved(database_url: str) -> None:
    with acting(database_url) as connection:
        connection.execute(
            "INSERT INTO bookkeeping.lease (holder, epoch, expires_at) VALUES ('us', 4, now()) "
            "ON CONFLICT (singleton) DO UPDATE SET epoch = 4"
        )
        position = Position(AGENT, "log", 4, Mark(5, "first"), started_offset=5)
        create(connection, position)
        moved = move(connection, position, Mark(6, "second"))
        record_statuses(
            connection,
            "site",
            moved,
            [Decision(Mark(6, "second"), Status.REMOVED), Decision(Mark(7, "x"), Status.IMPORTED)],
        )
        assert positions.read_positions(connection) == [StoredPosition(AGENT, 6, 5, "log")]
        assert positions.read_decisions(connection, 10) == [
            StoredDecision(AGENT, 6, Status.REMOVED.value)
        ]
        assert positions.read_decisions(connection, 0) == []


def test_r13_the_loaded_snapshot_is_that_of_the_journal(database_url: str) -> None:
    with acting(database_url) as connection:
        assert positions.read_loaded_snapshot(connection, "log") is None
        connection.execute(
            "INSERT INTO bookkeeping.joined_snapshot (snapshot_id, log_offset, journal_id, "
            "publisher_agents, subscriber, left_out) "
            "VALUES ('ab', 7, 'log', '{main}', 'golden', 'digest')"
        )
        assert positions.read_loaded_snapshot(connection, "another") is None
        found = positions.read_loaded_snapshot(connection, "log")
    assert found == LoadedSnapshot("ab", 7, ("main",), "golden", "digest")


def test_r16_an_older_announcement_changes_nothing(database_url: str) -> None:
    now_ms = _now_ms(database_url)
    with acting(database_url) as connection:
        for text, seen_ms in ((b"new", now_ms), (b"old", now_ms - 5_000)):
            rows = [AnnouncementRow("site", text, seen_ms)]
            subscriber_rows.write(connection, AGENT, rows)
        [found] = subscriber_rows.read(connection, AGENT, above_s=-60, below_s=60)
        assert (found.subscriber, found.announcement, found.seen_ms) == ("site", b"new", now_ms)
        assert [one.subscriber for one in subscriber_rows.read_all(connection)] == [
            found.subscriber
        ]
        assert subscriber_rows.read(connection, "another", above_s=-60, below_s=60) == []
        assert subscriber_rows.read(connection, AGENT, above_s=50, below_s=60) == []


def test_a_mark_sees_who_announced_itself_and_who_would_not_be_read(database_url: str) -> None:
    now_ms = _now_ms(database_url)
    with acting(database_url) as connection:
        rows = [AnnouncementRow("a", b"", now_ms), AnnouncementRow("b", b"", now_ms - 90_000)]
        for agent in (AGENT, "second"):
            subscriber_rows.write(connection, agent, rows)
        assert subscriber_rows.seen_since(connection, ["b", "a"], 60) == "a"
        assert subscriber_rows.seen_since(connection, ["b"], 60) is None
        assert subscriber_rows.names_but(connection, ["a"], 5) == ["b"]
        assert subscriber_rows.names_but(connection, [], 1) == ["a"]
        assert subscriber_rows.names_among(connection, ["b", "c"]) == {"b"}


def test_who_is_forgotten_is_in_no_list_until_it_comes_back(database_url: str) -> None:
    now_ms = _now_ms(database_url)

    async def forget() -> None:
        async with await AsyncConnection.connect(conninfo(database_url)) as connection:
            row = AnnouncementRow("site", b"first", now_ms - 1_000)
            await subscriber_rows.write_one(connection, AGENT, row)
            assert await subscriber_rows.forget_one(connection, AGENT, "nobody") is None
            assert await subscriber_rows.forget_one(connection, AGENT, "site") == row.seen_ms
            assert await subscriber_rows.forget_one(connection, AGENT, "site") is None
            found = await subscriber_rows.read_silent(connection, AGENT, -60)
            assert found == []
            assert await subscriber_rows.is_stored(connection, AGENT, "site")
            assert not await subscriber_rows.is_stored(connection, AGENT, "nobody")

    asyncio.run(forget())
    with acting(database_url) as connection:
        assert subscriber_rows.forgotten(connection, AGENT) == {"site": now_ms - 1_000}
        subscriber_rows.write(connection, AGENT, [AnnouncementRow("site", b"again", now_ms)])
        [found] = subscriber_rows.read(connection, AGENT, above_s=-60, below_s=60)
        assert found.announcement == b"again"
        old = AnnouncementRow("site", b"old", now_ms - 90_000)
        subscriber_rows.write(connection, "retired", [old])  # whose publisher is gone for good
        remove = partial(subscriber_rows.remove_silent, connection)
        assert remove(AGENT, 60, 1_000, 10) == 0, "its publisher may only be away"
        assert [remove(AGENT, 60, 60, 10) for _ in range(2)] == [1, 0]
        assert remove("retired", -60, 1_000, 10) == 0
        assert remove(AGENT, -60, 1_000, 10) == 1


def test_both_kinds_of_connections_write_the_same_audit_row(database_url: str) -> None:
    row = AuditRow("site", AGENT, "c1", "admin", "FORGET", {"last_seen_ms": 7})

    async def write() -> None:
        async with await AsyncConnection.connect(conninfo(database_url)) as connection:
            await row.write_async(connection)

    asyncio.run(write())
    with acting(database_url) as connection:
        row.write(connection)
        found = connection.execute(
            "SELECT subscriber, publisher_agent, command_id, issued_by, action, detail "
            "FROM bookkeeping.audit"
        ).fetchall()
    assert found == [("site", AGENT, "c1", "admin", "FORGET", {"last_seen_ms": 7})] * 2


NODES = [
    Node("/a", "page", "{}"),
    Node("/a/b", "file", '{"n": 1}', (Binary("data", "0" * 64, 3, "text/plain"),)),
    Node("/a-b", "page", "{}"),
]


@pytest.fixture
def content_url(database_url: str) -> str:
    with acting(database_url, IMPORTER) as connection:
        tree.upsert(connection, NODES)
    return database_url


def test_r29_a_scan_of_a_part_gives_its_nodes_and_no_neighbours(content_url: str) -> None:
    with acting(content_url, EXPORTER) as connection:
        whole = SubtreePart.whole("/a")
        assert [node.path for node in scan.nodes(connection, whole)] == ["/a", "/a/b"]
        assert [path for path, size in scan.sizes(connection, whole) if size > 0] == ["/a", "/a/b"]
        part = SubtreePart.between("/a", "/a/b", "")
        assert list(scan.nodes(connection, part)) == [NODES[1]]
        assert scan.count_nodes(connection, "/a") == (2, 1)
        assert scan.spread_paths(connection, "/a", "file", 5) == ["/a/b"]


def test_all_blocks_have_every_node_with_binaries(content_url: str) -> None:
    with acting(content_url, EXPORTER) as connection:
        blocks = scan.count_blocks(connection)
        found = dict(scan.binaries_in_blocks(connection, 0, blocks))
        assert blocks >= 1
        assert set(found) == {"/a/b"}
        assert json.loads(found["/a/b"])["data"]["length"] == 3
        assert list(scan.binaries_in_blocks(connection, blocks, blocks + 1)) == []


def test_hashes_of_ranges_are_the_sums_of_their_nodes_hashes(content_url: str) -> None:
    with acting(content_url, EXPORTER) as connection:
        starts = scan.range_starts(connection, least_nodes=2, most_ranges=10)
        assert starts[0] == ""
        for top, paths in (("/", ["/a", "/a-b", "/a/b"]), ("/a", ["/a", "/a/b"])):
            bounds = scan.bounds_below(top, "", None)
            hashes = dict(scan.node_hashes(connection, bounds))
            assert sorted(hashes) == paths
            assert scan.hash_range(connection, bounds) == (len(paths), str(sum(hashes.values())))
        bounds = scan.bounds_below("/", "/a-b", "/a/b")
        assert [path for path, _ in scan.node_hashes(connection, bounds)] == ["/a-b"]


def test_json_is_compared_as_the_database_has_it(content_url: str) -> None:
    with acting(content_url, EXPORTER) as connection:
        same, other = ("/a", "page", "{ }", "{}"), ("/a-b", "page", '{"x": 1}', "{}")
        assert scan.different(connection, [same, other]) == ["/a-b"]
        with pytest.raises(psycopg.DataError):
            scan.different(connection, [("/a", "page", '{"x": "\\u0000"}', "{}")])


def _now_ms(database_url: str) -> int:
    with acting(database_url) as connection:
        [(now_ms,)] = connection.execute(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        ).fetchall()
    return int(now_ms)
