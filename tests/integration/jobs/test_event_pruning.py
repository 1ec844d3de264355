"""Old events go, by the time of their commits; who has missed some is notified, and nobody else."""

from collections.abc import Callable

import pytest
from psycopg import Connection

from packhorse.db.connect import connect
from packhorse.jobs.events.position import EventPosition
from packhorse.jobs.events.pruning import EventRetention, PrunedEvents, prune_events
from packhorse.jobs.events.reading import position_now, read_page
from packhorse.jobs.events.receiver import load_cursor, store_cursor
from tests.harness.jobs.events import Writer, bookkeeper, emit_all

KEEP_NOTHING = EventRetention(events_s=0)
Prune = Callable[..., PrunedEvents]


@pytest.fixture
def prune(database_url: str) -> Prune:
    def run(retention: EventRetention = KEEP_NOTHING, **limits: int) -> PrunedEvents:
        return prune_events(lambda: connect(database_url, "tests"), retention, **limits)

    return run


def _names(connection: Connection, position: EventPosition) -> tuple[list[str], bool]:
    page = read_page(connection, position)
    return [event.properties["name"] for event in page.events], page.gap


def _count(connection: Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM jobs.event").fetchall()[0][0])


def _age_horizons(connection: Connection, seconds: int) -> None:
    connection.execute(
        "UPDATE jobs.event_horizon SET taken_at = taken_at - make_interval(secs => %s)", (seconds,)
    )


def test_events_go_once_they_have_been_there_for_long_enough(
    database_url: str, prune: Prune
) -> None:
    hour = EventRetention(events_s=3600)
    with bookkeeper(database_url) as connection:
        emit_all(database_url, "old")
        assert prune(hour) == PrunedEvents(0, 0, more=False)
        emit_all(database_url, "young")
        _age_horizons(connection, 3000)
        assert prune(hour).events == 0
        _age_horizons(connection, 600)
        assert prune(hour).events == 1
        left = connection.execute("SELECT properties ->> 'name' FROM jobs.event").fetchall()
        assert left == [("young",)]
        horizons = connection.execute("SELECT count(*) FROM jobs.event_horizon").fetchall()
        assert horizons == [(3,)], "the one that was pruned up to, and those since"


def test_an_event_of_a_long_transaction_counts_from_its_commit(
    database_url: str, prune: Prune
) -> None:
    writer = Writer(database_url, "w")
    with bookkeeper(database_url) as connection:
        position = position_now(connection)
        writer.write()
        connection.execute("UPDATE jobs.event SET created_at = created_at - interval '1 day'")
        prune()
        prune()
        writer.commit()
        connection.execute("UPDATE jobs.event SET created_at = created_at - interval '1 day'")
        hour = EventRetention(events_s=3600)
        assert prune(hour).events == 0, "it was in no horizon that is old"
        assert _names(connection, position)[0] == ["w1"]
    writer.close()


def test_who_has_missed_something_has_a_gap_and_nobody_else(
    database_url: str, prune: Prune
) -> None:
    writer = Writer(database_url, "w")
    with bookkeeper(database_url) as connection:
        before = position_now(connection)
        writer.write()
        emit_all(database_url, "one")
        during = position_now(connection)
        writer.commit()
        after = position_now(connection)
        connection.execute("SELECT pg_current_xact_id()")  # somebody else's: no event, so no gap
        prune()
        emit_all(database_url, "two")
        assert _names(connection, before) == (["two"], True)
        assert _names(connection, during) == (["two"], True), "w1 came after it and is gone"
        assert _names(connection, after) == (["two"], False)
    writer.close()


def test_a_transaction_under_way_makes_no_gap(database_url: str, prune: Prune) -> None:
    writer = Writer(database_url, "w")
    with bookkeeper(database_url) as connection:
        writer.write()
        emit_all(database_url, "one")
        during = position_now(connection)
        prune()
        writer.commit()
        assert _names(connection, during) == (["w1"], False)
    writer.close()


def test_a_gap_in_the_middle_of_a_round_is_noticed(database_url: str, prune: Prune) -> None:
    with bookkeeper(database_url) as connection:
        start = position_now(connection)
        emit_all(database_url, *"abcd")
        page = read_page(connection, start, most=2)
        assert not page.gap
        prune()
        rest = read_page(connection, page.position)
    assert rest.gap
    assert (rest.events, rest.more) == ((), False)


def test_batches_and_the_limit(database_url: str, prune: Prune) -> None:
    with bookkeeper(database_url) as connection:
        for _ in range(25):
            emit_all(database_url, *"abcd")
        assert prune(batch=7, most=50) == PrunedEvents(50, 0, more=True)
        assert _count(connection) == 50
        assert prune(batch=7, most=500) == PrunedEvents(50, 0, more=False)
        assert _count(connection) == 0


def test_rows_that_somebody_holds_are_left_for_the_next_time(
    database_url: str, prune: Prune
) -> None:
    with bookkeeper(database_url) as holder:
        emit_all(database_url, *"abcd")
        with holder.transaction():
            holder.execute("SELECT FROM jobs.event ORDER BY number LIMIT 1 FOR UPDATE")
            assert prune().events == 3
        assert prune().events == 1


def test_what_a_restored_database_brought_along_goes(database_url: str, prune: Prune) -> None:
    with bookkeeper(database_url) as connection:
        emit_all(database_url, "a")
        connection.execute("UPDATE jobs.event SET xid = '90000000'")
        connection.execute(
            "INSERT INTO jobs.event_horizon (seen, removed_to) "
            "VALUES ('90000000:90000000:', '80000000')"
        )
        position = position_now(connection)
        assert not read_page(connection, position).gap
        assert prune().events == 1
        horizons = connection.execute("SELECT seen::text FROM jobs.event_horizon").fetchall()
        assert len(horizons) == 1
        assert horizons[0][0] != "90000000:90000000:"


def test_cursors_of_instances_that_are_long_gone(database_url: str, prune: Prune) -> None:
    with bookkeeper(database_url) as connection:
        for name in ("gone", "here"):
            load_cursor(connection, name)
        connection.execute(
            "UPDATE jobs.event_cursor SET stored_at = stored_at - interval '31 days'"
        )
        store_cursor(connection, "here", position_now(connection))
        assert prune(EventRetention()).cursors == 1
        left = connection.execute("SELECT instance_id FROM jobs.event_cursor").fetchall()
        assert left == [("here",)]
