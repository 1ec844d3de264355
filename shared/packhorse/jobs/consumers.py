"""The consumers of one process: which of them does the jobs of a topic, and what is announced.

The nearest pattern wins: the topic itself before `/*` before `/**`, the longer before the
shorter; of equal patterns the one that was there first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packhorse.errors import Permanent
from packhorse.jobs.consumer import Consumer, ContextConsumer, with_context
from packhorse.jobs.names import closeness, matches, require_pattern
from packhorse.topology.discovery import Discovery
from packhorse.topology.properties import CONSUMERS, LARGEST_VALUE
from packhorse.topology.view import TopologyView


class TooManyConsumers(Permanent):
    """The patterns do not fit into the one property with which they are announced."""


@dataclass(frozen=True, slots=True)
class HandledTopics:
    """The topics whose jobs an instance does."""

    patterns: tuple[str, ...] = ()

    def covers(self, topic: str) -> bool:
        """Return whether the instance does jobs of a topic."""
        return any(matches(one, topic) for one in self.patterns)

    def announcement(self) -> str:
        """Return it as the property `packhorse.consumers` has it; empty for nothing."""
        return ",".join(self.patterns)


def handled_topics_of(announcement: str) -> HandledTopics:
    """Return what another instance announces. What is no pattern is left out (R30)."""
    reported = [word.strip() for word in announcement.split(",")]
    return HandledTopics(tuple(word for word in reported if _is_pattern(word)))


def live_handled_topics(discovery: Discovery) -> Mapping[str, HandledTopics] | None:
    """Return the live instances of the own cluster and what they do; None where not known."""
    view = discovery.current_view()
    return None if view is None else handled_topics_in(view)


def handled_topics_in(view: TopologyView) -> Mapping[str, HandledTopics]:
    """Return the instances of the own cluster in a view, and what they do."""
    return {
        one.id: handled_topics_of(one.properties.get(CONSUMERS, ""))
        for one in view.local_cluster.instances
    }


class Consumers:
    """A registry; complete before `open_jobs` takes it."""

    def __init__(self) -> None:
        self._registered: tuple[tuple[str, ContextConsumer], ...] = ()
        """With their patterns, the nearest first."""

    def add(self, pattern: str, consumer: Consumer) -> None:
        """Let a consumer do the jobs of a topic or pattern.

        It is called with the job, and with the context if it takes that. Raises `InvalidName`,
        `InvalidConsumer` for what can't do a job (an `async def`, a class), and
        `TooManyConsumers`: then a pattern with `/**` says the same.
        """
        require_pattern(pattern)
        registered = (*self._registered, (pattern, with_context(consumer)))
        if len(_handled_topics(registered).announcement()) > LARGEST_VALUE:
            raise TooManyConsumers(
                f"with {pattern} the patterns of consumers have more than {LARGEST_VALUE} "
                "bytes; register fewer, wider ones"
            )
        self._registered = tuple(sorted(registered, key=lambda one: closeness(one[0])))

    def find(self, topic: str) -> ContextConsumer | None:
        """Return who does the jobs of a topic here, called with both; None when nobody does."""
        found = (call for pattern, call in self._registered if matches(pattern, topic))
        return next(found, None)

    def handled_topics(self) -> HandledTopics:
        """Return the topics that are done here."""
        return _handled_topics(self._registered)


def _handled_topics(registered: Sequence[tuple[str, ContextConsumer]]) -> HandledTopics:
    return HandledTopics(tuple(sorted({pattern for pattern, _ in registered})))


def _is_pattern(word: str) -> bool:
    try:
        require_pattern(word)
    except Permanent:
        return False
    return True
