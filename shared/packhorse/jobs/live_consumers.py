"""Who can do jobs: the live instances, with the topics that each does."""

from collections.abc import Mapping

from packhorse.jobs.consumers import HandledTopics
from packhorse.jobs.store.given import LEADER

LiveConsumers = Mapping[str, HandledTopics]
"""What each instance of the own cluster does, by its id."""


def is_consumed(topic: str, only_on: str | None, live: LiveConsumers) -> bool:
    """Return whether somebody does jobs of a topic; with `only_on`, whether that one does.

    Whoever does them is `LEADER` as well, if no other one is.
    """
    if only_on and only_on != LEADER:
        return only_on in live and live[only_on].covers(topic)
    return any(handled_topics.covers(topic) for handled_topics in live.values())
