"""What a subscription says it is in when it can't go on."""

import pytest

from packhorse.messaging.api import Bounds, JournalUnavailable, OffsetOutOfRange, TopicMissing
from packhorse.wire.messages import SubscriptionState
from packhorse_services.subscriber.importing.subscription import state_after
from packhorse_services.subscriber.journal.failures import Gap, JournalMismatch


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Gap("begins at 9"), SubscriptionState.GAP),
        (
            OffsetOutOfRange("t", 0, 5, Bounds(9, 20)),
            SubscriptionState.GAP,
        ),  # cut while it was read
        (OffsetOutOfRange("t", 0, 25, Bounds(9, 20)), SubscriptionState.WAITING_FOR_JOURNAL),
        (JournalMismatch("another"), SubscriptionState.JOURNAL_MISMATCH),
        (JournalUnavailable("away"), SubscriptionState.WAITING_FOR_JOURNAL),
        (TopicMissing("gone"), SubscriptionState.WAITING_FOR_JOURNAL),
        (OSError("the database"), SubscriptionState.RUNNING),
    ],
)
def test_r13_a_subscription_that_stands_says_why(
    error: Exception, state: SubscriptionState
) -> None:
    assert state_after(error, SubscriptionState.WAITING_FOR_LEASE) is state
