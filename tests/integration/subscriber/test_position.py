"""The row that says what a subscription has imported, and who may write it (R13, R25)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from packhorse.wire.messages import Action, PackageEntry
from packhorse_services.subscriber.journal import position as positions
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.failures import Fenced
from packhorse_services.subscriber.journal.position import Position
from packhorse_services.subscriber.journal.sequences import HighWater, ImpossibleSequence
from tests.harness.feed import Feed, page
from tests.harness.subscriber import Worker, content_of, rows_of

NEW = Position("main", "journal", 2, Mark(6, "id6"), 6, incomplete=True)
_LEFT = ("attempt", "status", "status_mark")


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection[Any]]:
    """To a database whose lease has epoch 2, with what two subscriptions left."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO bookkeeping.lease (holder, epoch, expires_at) VALUES ('w', 2, now())"
        )
        for agent in ("main", "other"):
            connection.execute(
                "INSERT INTO bookkeeping.attempt VALUES (%s, 7, 'id7', 3, 'bad', 1, 9)", (agent,)
            )
            connection.execute("INSERT INTO bookkeeping.status_mark VALUES (%s, 7)", (agent,))
            connection.execute(
                "INSERT INTO bookkeeping.status VALUES "
                "(%s, 7, 'sub', 'REMOVED', 'id7', 1, '', '', now(), 'journal')",
                (agent,),
            )
        yield connection


def left(connection: Connection[Any]) -> dict[str, list[str]]:
    """Return whose rows are there."""
    return {
        table: [
            agent
            for (agent,) in connection.execute(
                f"SELECT publisher_agent FROM bookkeeping.{table} ORDER BY 1".encode()
            )
        ]
        for table in _LEFT
    }


def test_a_new_subscription_inherits_nothing_from_an_earlier_one(
    connection: Connection[Any],
) -> None:
    positions.create(connection, NEW)
    assert positions.load(connection, "main") == NEW
    assert left(connection) == {table: ["other"] for table in _LEFT}


@pytest.mark.parametrize("epoch", [1, 3])
def test_r25_who_has_not_the_lease_begins_no_subscription(
    connection: Connection[Any], epoch: int
) -> None:
    with pytest.raises(Fenced):
        positions.create(connection, replace(NEW, epoch=epoch))
    assert positions.load(connection, "main") is None
    assert left(connection) == {table: ["main", "other"] for table in _LEFT}


def test_r25_a_position_moves_from_where_it_is_in_its_epoch_alone(
    connection: Connection[Any],
) -> None:
    positions.create(connection, NEW)
    positions.create(connection, replace(NEW, agent="other"))
    for elsewhere in (replace(NEW, mark=Mark(5, "id5")), replace(NEW, epoch=1)):
        with pytest.raises(Fenced):
            positions.move(connection, elsewhere, Mark(9, "id9"))
    before = moved_at(connection)
    moved = positions.move(connection, NEW, Mark(9, "id9"))
    assert moved == positions.load(connection, "main") == replace(NEW, mark=Mark(9, "id9"))
    assert positions.load(connection, "other") == replace(NEW, agent="other")
    assert moved_at(connection) > before


@pytest.mark.parametrize("first", [True, False])
def test_r25_a_session_whose_position_has_moved_is_over(
    feed: Feed, worker: Worker, first: bool
) -> None:
    if not first:  # the first after a start is tried alone, the next in a group
        feed.add(page("/a"))
    worker.run()
    offset = feed.add(page("/b"))
    rows_of(worker.url, f"UPDATE bookkeeping.position SET log_offset = {offset} RETURNING 1")
    with pytest.raises(Fenced):
        worker.run()
    assert "/b" not in content_of(worker.url)


def moved_at(connection: Connection[Any]) -> Any:
    query = "SELECT moved_at FROM bookkeeping.position WHERE publisher_agent = 'main'"
    return connection.execute(query).fetchone()


@pytest.mark.parametrize(
    ("journal_id", "offset", "agents", "incomplete"),
    [
        ("journal", 6, ["main", "other"], False),
        ("journal", 6, ["other"], True),
        ("journal", 5, ["main"], True),
        ("another", 6, ["main"], True),
    ],
)
def test_r13_only_its_own_snapshot_makes_what_began_later_complete(
    connection: Connection[Any],
    journal_id: str,
    offset: int,
    agents: list[str],
    incomplete: bool,
) -> None:
    positions.create(connection, NEW)
    connection.execute(
        "INSERT INTO bookkeeping.joined_snapshot "
        "(snapshot_id, log_offset, journal_id, publisher_agents, subscriber, left_out) "
        "VALUES ('s', %s, %s, %s, 'sub', '')",
        (offset, journal_id, agents),
    )
    assert positions.load(connection, "main") == replace(NEW, incomplete=incomplete)


def test_r13_a_subscription_from_the_beginning_is_complete(connection: Connection[Any]) -> None:
    positions.create(connection, replace(NEW, mark=Mark(-1, ""), started_offset=-1))
    loaded = positions.load(connection, "main")
    assert loaded is not None
    assert not loaded.incomplete


def test_r27_each_subscription_keeps_the_highest_numbers_of_its_own(
    connection: Connection[Any],
) -> None:
    def package(sequence: int) -> PackageEntry:
        return PackageEntry("id", "main", Action.TEST, producer="p", epoch=1, sequence=sequence)

    for sequence in (10, 5):
        noted = HighWater({})
        noted.note("p", (1, sequence), 100)
        noted.store(connection, "main")
    assert HighWater.load(connection, "other").passes(package(10), 200)
    known = HighWater.load(connection, "main")
    assert not known.fork().passes(package(10), 200)
    with pytest.raises(ImpossibleSequence):
        known.fork().passes(package(10**9), 200)
    known.release("p")
    known.store(connection, "main")
    assert HighWater.load(connection, "main").passes(package(10**9), 200)
