"""A subscriber whose names of topics are not the publisher's: it says which topic is missing."""

import pytest

from packhorse.wire.messages import SubscriptionState
from tests.harness.feed import Feed, page
from tests.harness.subscriber import content_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.running import imported, running, subscription


@pytest.mark.parametrize("part", ["package", "command"])
def test_a_topic_without_which_nothing_is_imported_is_the_reason_of_waiting(
    feed: Feed, database_url: str, part: str
) -> None:
    feed.add(page("/a"))
    with running(feed, database_url, **{f"topic_{part}": "misspelt"}) as subscriber:
        eventually(
            lambda: "topic misspelt does not exist" in subscription(subscriber).last_error,
            "the reason is shown",
        )
        assert subscription(subscriber).state is SubscriptionState.WAITING_FOR_JOURNAL
    assert content_of(database_url) == {}


@pytest.mark.parametrize("part", ["status", "discovery"])
def test_another_topic_that_is_not_there_is_named_in_the_log(
    feed: Feed, database_url: str, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    with running(feed, database_url, **{f"topic_{part}": "misspelt"}) as subscriber:
        imported(subscriber, feed.add(page("/a")))
        eventually(lambda: "topic misspelt does not exist" in caplog.text, "the log says it")
    assert set(content_of(database_url)) == {"/a"}
