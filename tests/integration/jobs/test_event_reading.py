"""What a reader of stored events sees: each that commits once, whatever the order of commits."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packhorse.jobs.event_store import NewEvent, record
from packhorse.jobs.events.position import EventPosition, InvalidPosition, parse_position
from packhorse.jobs.events.reading import position_now, read_page
from packhorse.jobs.names import InvalidName, InvalidProperties
from tests.harness.depth import examples
from tests.harness.jobs.events import (
    NumberReader,
    OldestReader,
    ReaderMaker,
    TransactionReader,
    TrueReader,
    Writer,
    bookkeeper,
    emit_all,
)
from tests.harness.postgres import Databases

READ = (9, "read")
Step = tuple[int, str]

_STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["write", "write", "commit", "roll_back"]))
    | st.just(READ),
    max_size=40,
)


@pytest.fixture(scope="module")
def shared_url(databases: Databases) -> str:
    return databases.new("events")


@pytest.fixture
def writers(shared_url: str) -> Iterator[list[Writer]]:
    made = [Writer(shared_url, name) for name in "abc"]
    yield made
    for writer in made:
        writer.close()


def play(url: str, writers: Sequence[Writer], steps: Sequence[Step], make: ReaderMaker) -> None:
    """Let writers and a reader do the steps, and check what the reader saw."""
    before = {id(writer): len(writer.committed) for writer in writers}
    with bookkeeper(url) as connection:
        reader, seen = make(connection), list[str]()
        for who, what in [*steps, (0, "commit"), (1, "roll_back"), (2, "commit"), READ]:
            if what == "read":
                seen += reader.read()
                done = [name for one in writers for name in one.committed[before[id(one)] :]]
                assert Counter(seen) == Counter(done)
            else:
                getattr(writers[who], what)()
        assert reader.read() == []


@given(steps=_STEPS)
@settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_each_event_is_read_once_and_at_once(
    shared_url: str, writers: list[Writer], steps: list[Step]
) -> None:
    play(shared_url, writers, steps, TrueReader)


OPPOSITE = [(0, "write"), (1, "write"), (1, "commit"), READ, (0, "commit"), READ]
LONG = [(0, "write"), *[(1, "write"), (1, "commit"), READ] * 5, (0, "write"), (0, "commit"), READ]
ROLLED_BACK = [(0, "write"), (1, "write"), (0, "roll_back"), READ, (1, "commit"), READ]


@pytest.mark.parametrize("steps", [OPPOSITE, LONG, ROLLED_BACK])
def test_commits_in_another_order_than_writes(
    shared_url: str, writers: list[Writer], steps: list[Step]
) -> None:
    play(shared_url, writers, steps, TrueReader)


@pytest.mark.proof
@pytest.mark.parametrize("broken", [NumberReader, TransactionReader, OldestReader])
def test_the_check_notices_broken_readers(
    shared_url: str, writers: list[Writer], broken: ReaderMaker
) -> None:
    with pytest.raises(AssertionError):
        play(shared_url, writers, LONG, broken)
    for writer in writers:
        writer.roll_back()


def test_a_round_comes_by_number_whatever_the_transactions_are(database_url: str) -> None:
    early, late = Writer(database_url, "a"), Writer(database_url, "b")
    with bookkeeper(database_url) as connection:
        reader = TrueReader(connection)
        for writer in (early, late, late, early, late):
            writer.write()
        late.commit()
        early.commit()
        assert reader.read() == ["a1", "b1", "b2", "a2", "b3"]
    early.close()
    late.close()


def test_a_position_is_read_from_again_and_goes_on_in_the_middle(database_url: str) -> None:
    with bookkeeper(database_url) as connection:
        start = position_now(connection)
        emit_all(database_url, *"abcde")
        first = read_page(connection, start, most=2)
        emit_all(database_url, "f")
        resumed = read_page(connection, parse_position(str(first.position)), most=10)
        again = read_page(connection, start, most=10)
        rest = read_page(connection, resumed.position)
    assert [event.properties["name"] for event in first.events] == ["a", "b"]
    assert first.more
    assert [event.properties["name"] for event in resumed.events] == ["c", "d", "e"]
    assert [event.properties["name"] for event in again.events] == list("abcdef")
    assert [event.properties["name"] for event in rest.events] == ["f"]
    assert not rest.more


def test_own_events_come_back_only_as_echoes(database_url: str) -> None:
    with bookkeeper(database_url) as connection:
        start = position_now(connection)
        mine = NewEvent("t/a", "me", {"n": 1}), NewEvent("t/b", "me", {"n": 2}, echo=True)
        record(connection, [*mine, NewEvent("t/c", "other")])
        events = read_page(connection, start, reader="me").events
    heard = [event.at("me") for event in events]
    assert [(event.topic, event.is_local) for event in heard] == [("t/b", True), ("t/c", False)]
    assert heard[1].properties == {"event.application": "other"}


def test_a_page_is_bounded_by_bytes_as_well(database_url: str) -> None:
    large = {"text": "x" * 65_000}
    with bookkeeper(database_url) as connection:
        position = position_now(connection)
        record(connection, [NewEvent("t/x", "a", large) for _ in range(100)])
        sizes = []
        while True:
            page = read_page(connection, position)
            sizes.append(len(page.events))
            position = page.position
            if not page.more:
                break
    assert sizes == [65, 35]


@pytest.mark.parametrize(
    ("topic", "properties", "error"),
    [
        ("no topic", {}, InvalidName),
        ("t/x", {"event.application": "forged"}, InvalidProperties),
        ("t/x", {"large": "x" * 65_536}, InvalidProperties),
        ("t/x", {"set": {1, 2}}, InvalidProperties),
        ("t/x", {"half": "\ud800"}, InvalidProperties),
        ("t/x", {"zero": "\0"}, InvalidProperties),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_written(
    database_url: str, topic: str, properties: dict[str, object], error: type[Exception]
) -> None:
    with bookkeeper(database_url) as connection:
        with pytest.raises(error):
            record(connection, [NewEvent("t/good", "a"), NewEvent(topic, "a", properties)])
        assert connection.execute("SELECT count(*) FROM jobs.event").fetchall() == [(0,)]


@pytest.mark.parametrize(
    "text", ["", "1", "9:1:", "1:2:3;", "1:5:9,9", "1:2:;1:2:", "x" * 70_000, "1:2:\n", "٣:٤:"]
)
def test_a_position_that_somebody_made_up_is_refused(database_url: str, text: str) -> None:
    with bookkeeper(database_url) as connection, pytest.raises(InvalidPosition):
        read_page(connection, parse_position(text))


def test_a_position_of_another_database_is_a_gap(database_url: str) -> None:
    with bookkeeper(database_url) as connection:
        page = read_page(connection, EventPosition("90000000:90000000:"))
        assert page.gap
        emit_all(database_url, "a")
        after = read_page(connection, page.position)
    assert [event.properties["name"] for event in after.events] == ["a"]
    assert not after.gap


def test_events_of_a_restored_database_are_not_published_again(database_url: str) -> None:
    with bookkeeper(database_url) as connection:
        emit_all(database_url, "a")
        connection.execute("UPDATE jobs.event SET xid = '90000000'")
        page = read_page(connection, EventPosition("1:1:"))
    assert page.events == ()


@pytest.mark.parametrize(
    ("patterns", "topics"),
    [
        (("**",), ["a", "a/b", "a/b/c", "ab"]),
        (("a/*",), ["a/b"]),
        (("a/**",), ["a/b", "a/b/c"]),
        (("a", "ab", "x/**"), ["a", "ab"]),
        (("a/*", "a/**"), ["a/b", "a/b/c"]),
        (("%s",), []),
        ((), []),
    ],
)
def test_only_topics_that_somebody_wants(
    database_url: str, patterns: Sequence[str], topics: list[str]
) -> None:
    with bookkeeper(database_url) as connection:
        start = position_now(connection)
        for topic in ("a", "a/b", "a/b/c", "ab"):
            emit_all(database_url, "name", topic=topic)
        page = read_page(connection, start, patterns=patterns)
        assert [event.topic for event in page.events] == topics
        rest = read_page(connection, page.position, patterns=patterns)
        assert (rest.events, rest.more) == ((), False)
