"""What a reset leaves of all that a database knows of its subscriptions (R25, R27)."""

from collections.abc import Iterator
from typing import Any

import pytest
from psycopg import Connection

from packhorse.db.connect import connect
from packhorse_services.subscriber.commands import reset
from packhorse_services.subscriber.commands.reset import ResetTarget
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.failures import Fenced
from packhorse_services.subscriber.journal.sequences import HighWater

_KNOWN = """
    INSERT INTO bookkeeping.lease (holder, epoch, expires_at) VALUES ('w', 1, 'infinity');
    INSERT INTO bookkeeping.position
        (publisher_agent, journal_id, epoch, log_offset, package_id, started_offset, moved_at)
    SELECT agent, 'j1', 1, 9, 'p9', 3, '2020-01-01' FROM unnest('{main, other}'::text[]) AS agent;
    INSERT INTO bookkeeping.attempt SELECT publisher_agent, 10, 'p10', 1, '', 0, 0
    FROM bookkeeping.position;
    INSERT INTO bookkeeping.applied_sequence
    SELECT publisher_agent, producer, 1, 1, at FROM bookkeeping.position, (
        VALUES ('at', 5), ('above', 6), ('unknown', NULL)) AS kept (producer, at);
    INSERT INTO bookkeeping.applied_package (publisher_agent, package_id)
    SELECT publisher_agent, id FROM bookkeeping.position, (VALUES ('p4'), ('p8')) AS kept (id);
    INSERT INTO bookkeeping.status (publisher_agent, log_offset, subscriber, status, package_id,
        attempts, reason, command_id, journal_id)
    SELECT publisher_agent, at, 'sub', 'REMOVED', '', 0, '', '', 'j1'
    FROM bookkeeping.position, (VALUES (5), (6)) AS kept (at);
    INSERT INTO bookkeeping.status_mark SELECT publisher_agent, 8 FROM bookkeeping.position;
"""
_TABLES = {
    "position": "journal_id, epoch, log_offset, package_id, started_offset, moved_at < '2021-1-1'",
    "attempt": "log_offset",
    "applied_sequence": "producer",
    "applied_package": "package_id",
    "status": "log_offset",
    "status_mark": "log_offset",
}
ALL = {
    "position": [("j1", 1, 9, "p9", 3, True)],
    "attempt": [(10,)],
    "applied_sequence": [("above",), ("at",), ("unknown",)],
    "applied_package": [("p4",), ("p8",)],
    "status": [(5,), (6,)],
    "status_mark": [(8,)],
}


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with connect(database_url, "tests", autocommit=True) as connection:
        connection.execute(_KNOWN.encode())
        yield connection


def known(connection: Connection, agent: str) -> dict[str, list[tuple[Any, ...]]]:
    return {
        table: connection.execute(
            f"SELECT {columns} FROM bookkeeping.{table} "
            "WHERE publisher_agent = %s ORDER BY 1".encode(),
            (agent,),
        ).fetchall()
        for table, columns in _TABLES.items()
    }


def to(offset: int, journal_id: str = "j1", package_ids: tuple[str, ...] = ()) -> ResetTarget:
    return ResetTarget("main", journal_id, Mark(offset, f"p{offset}"), HighWater({}), package_ids)


def test_r25_back_in_the_log_what_lies_above_is_forgotten_of_that_agent_alone(
    connection: Connection,
) -> None:
    assert reset.move(connection, 2, to(5, package_ids=("p4", "p4", ""))) == {
        "from": 9,
        "to": 5,
        "epoch": 2,
    }
    assert known(connection, "other") == ALL
    assert known(connection, "main") == {
        "position": [("j1", 2, 5, "p5", 3, False)],
        "attempt": [],
        "applied_sequence": [("at",)],
        "applied_package": [("p4",)],
        "status": [(5,)],
        "status_mark": [(5,)],
    }


def test_a_reset_below_where_it_began_undoes_that(connection: Connection) -> None:
    reset.move(connection, 2, to(1))
    assert known(connection, "main")["position"] == [("j1", 2, 1, "p1", 1, False)]


@pytest.mark.parametrize(("offset", "started"), [(9, 3), (12, 12)])
def test_r27_where_nothing_comes_again_nothing_is_forgotten(
    connection: Connection, offset: int, started: int
) -> None:
    reset.move(connection, 2, to(offset, package_ids=("p4",)))
    position = [("j1", 2, offset, f"p{offset}", started, False)]
    assert known(connection, "main") == {**ALL, "position": position}


def test_r24_in_another_log_nothing_counts_that_was_known(connection: Connection) -> None:
    changed = reset.move(connection, 2, to(5, "j2", ("p5",)))
    assert changed == {
        "from": 9,
        "to": 5,
        "epoch": 2,
        "from_journal": "j1",
        "to_journal": "j2",
    }
    assert known(connection, "other") == ALL
    assert known(connection, "main") == {
        "position": [("j2", 2, 5, "p5", 5, False)],
        "attempt": [],
        "applied_sequence": [],
        "applied_package": [("p5",)],
        "status": [],
        "status_mark": [(-1,)],
    }


def test_r25_all_subscriptions_get_the_next_epoch_from_who_has_the_lease(
    connection: Connection,
) -> None:
    with pytest.raises(Fenced):
        reset.raise_epoch(connection, 7)
    assert reset.raise_epoch(connection, 1) == 2
    assert [known(connection, agent)["position"][0][1] for agent in ("main", "other")] == [2, 2]


def test_what_other_agents_left_is_forgotten_with_their_subscriptions(
    connection: Connection,
) -> None:
    reset.forget_others(connection, ["main", "third"])
    assert known(connection, "main") == ALL
    gone = known(connection, "other")
    assert gone.pop("status_mark") == [(-1,)]
    assert set(map(tuple, gone.values())) == {()}
