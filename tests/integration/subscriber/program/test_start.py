"""A new subscriber on a journal that has forgotten its beginning, on both journals (R8, R13)."""

from tests.harness.feed import Feed, page
from tests.harness.subscriber import content_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.running import running, subscription


def test_r13_a_shortened_journal_is_a_gap_unless_the_oldest_is_asked_for(
    real_feed: Feed, database_url: str
) -> None:
    feed = real_feed
    prefix = {"topic_prefix": feed.topics.package.removesuffix("_package")}
    offsets = [feed.add(page(f"/n{number}")) for number in range(4)]
    feed.journal.truncate(feed.topics.package, offsets[2])
    with running(feed, database_url, **prefix) as subscriber:
        eventually(lambda: subscription(subscriber).state.name == "GAP", "the gap is seen")
        reported = subscription(subscriber).last_error
        eventually(
            lambda: [one.states[0].state.name for one in feed.announcements()[-1:]] == ["GAP"],
            "the gap is announced",
        )
    for way_out in ("PACKHORSE_START=snapshot", "copy", "PACKHORSE_START=oldest"):
        assert way_out in reported
    assert f"begins at {offsets[2]}" in reported
    assert content_of(database_url) == {}
    assert rows_of(database_url, "SELECT FROM bookkeeping.position") == []

    with running(feed, database_url, start="oldest", **prefix) as subscriber:
        eventually(lambda: subscription(subscriber).offset == offsets[3], "it imports what is left")
    assert set(content_of(database_url)) == {"/n2", "/n3"}
    with running(feed, database_url, **prefix) as subscriber:  # whatever it is reported afterwards
        last = feed.add(page("/n4"))
        eventually(lambda: subscription(subscriber).offset == last, "it goes on")
        eventually(
            lambda: [one.states[0].offset for one in feed.announcements()[-1:]] == [last],
            "that is announced",
        )
    state = feed.announcements()[-1].states[0]
    assert (state.started_offset, state.incomplete) == (offsets[1], True)


def test_r13_records_deleted_from_the_same_topic_are_a_gap_for_who_needs_them(
    real_feed: Feed, database_url: str
) -> None:
    feed = real_feed
    prefix = {"topic_prefix": feed.topics.package.removesuffix("_package")}
    with running(feed, database_url, **prefix) as subscriber:
        first = feed.add(page("/a"))
        eventually(lambda: subscription(subscriber).offset == first, "it follows")
        feed.journal.truncate(feed.topics.package, first + 1)  # nobody needs it any more
        second = feed.add(page("/b"))
        eventually(lambda: subscription(subscriber).offset == second, "it goes on")
    for number in range(3):
        last = feed.add(page(f"/n{number}"))
    feed.journal.truncate(feed.topics.package, last)
    with running(feed, database_url, **prefix) as subscriber:
        eventually(lambda: subscription(subscriber).state.name == "GAP", "the gap is seen")
        assert f"begins at {last}" in subscription(subscriber).last_error
    assert set(content_of(database_url)) == {"/a", "/b"}
