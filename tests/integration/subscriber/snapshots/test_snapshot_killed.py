"""A load that is killed or paused in the middle leaves nothing half there."""

import pytest

from tests.harness.feed import Feed, page
from tests.harness.processes import Program, Programs
from tests.harness.snapshots import snapshot_of
from tests.harness.subscriber import content_of, position_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.running import (
    hash_of,
    imported,
    reached,
    running,
    session_that_waits,
)
from tests.integration.subscriber.snapshots.histories import (
    BOTH,
    complete_on_both,
    everywhere,
    held,
    occupied,
    write,
)


@pytest.fixture
def prepared(journal_feed: Feed, complete_url: str) -> int:
    """A history, and a snapshot of it; the offset."""
    offset = write(journal_feed, 30)
    with complete_on_both(journal_feed, complete_url) as other:
        everywhere(other, offset)
    snapshot_of(complete_url, journal_feed, BOTH, part_nodes=4)
    return offset


def started(programs: Programs, url: str) -> Program:
    program = programs.subscriber(
        "sub", url, publisher_agents="main,other", start="snapshot", lease_s=1
    )
    program.start()
    return program


def until_it_waits(program: Program, url: str) -> None:
    """Wait for a load whose session waits for a lock."""
    eventually(lambda: program.supervise() or session_that_waits(url) is not None, what="a load")


def test_killed_in_the_middle_of_a_load_nothing_is_half_there(
    programs: Programs, journal_feed: Feed, prepared: int, database_url: str, complete_url: str
) -> None:
    with running(journal_feed, database_url, publisher_agents=("old",)) as first:
        imported(first, journal_feed.add(page("/main/n1", 99), agent="old"), "old")
    before, old = content_of(database_url), position_of(database_url, "old")
    program = programs.subscriber(
        "sub", database_url, publisher_agents="main,other", start="snapshot", lease_s=1
    )
    for statement in (
        "SELECT FROM content.node WHERE path = '/main' FOR UPDATE",  # is to be removed
        "INSERT INTO content.node VALUES ('/main/n6', 'x', '{}', '{}')",
        "INSERT INTO content.node VALUES ('/other', 'x', '{}', '{}')",
        "INSERT INTO content.node VALUES ('/other/n4', 'x', '{}', '{}')",
        "SELECT FROM bookkeeping.subscription_control WHERE publisher_agent = 'other' FOR UPDATE",
    ):
        with held(database_url, statement):
            program.start()
            until_it_waits(program, database_url)
            assert content_of(database_url) == before
            program.kill()
        assert content_of(database_url) == before
        assert position_of(database_url, "old") == old
        assert rows_of(database_url, "SELECT count(*) FROM bookkeeping.position") == [(1,)]
    program.start()
    program.ready()
    last = journal_feed.add(page("/main/after"))
    for agent in BOTH:
        reached_by(database_url, agent, last)
    with complete_on_both(journal_feed, complete_url) as other:
        everywhere(other, last)
    assert hash_of(database_url) == hash_of(complete_url)


def reached_by(url: str, agent: str, offset: int) -> None:
    def there() -> bool:
        rows = rows_of(
            url, f"SELECT log_offset FROM bookkeeping.position WHERE publisher_agent = '{agent}'"
        )
        return bool(rows) and rows[0][0] >= offset

    eventually(there, what=f"{agent} reaches {offset}")


def test_a_worker_paused_in_a_load_is_replaced_and_changes_nothing_later(
    programs: Programs, journal_feed: Feed, prepared: int, database_url: str, complete_url: str
) -> None:
    with occupied(database_url, "/other/n3"):
        paused = started(programs, database_url)
        until_it_waits(paused, database_url)
        paused.pause()
    started(programs, database_url).ready()
    for agent in BOTH:
        reached_by(database_url, agent, prepared)
    last = write(journal_feed, 3)
    for agent in BOTH:
        reached_by(database_url, agent, last)
    paused.resume()
    last = write(journal_feed, 3)
    for agent in BOTH:
        reached_by(database_url, agent, last)
    with complete_on_both(journal_feed, complete_url) as other:
        everywhere(other, last)
    assert hash_of(database_url) == hash_of(complete_url)
    assert paused.running
    reached(database_url, last)
