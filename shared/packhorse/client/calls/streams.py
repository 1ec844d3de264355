"""What can be followed: each is a stream that goes on where it was when its connection is lost."""

from packhorse.client.exchange import with_query
from packhorse.client.following import EventKind, Following


def events(*kinds: EventKind, subscriber: str | None = None, after: str = "") -> Following:
    """Follow packages, statuses and what was distributed, behind the event with the id `after`.

    "" begins now, `p0-s0-e0` with all that the journal still has. A `Gap` reports events that
    nobody can show any more.
    """
    types = ",".join(kinds) or None
    return Following(with_query("/events", types=types, subscriber=subscriber), after=after)


def job_events(topic: str = "**", *, after: str = "") -> Following:
    """Follow the events of the instances whose topics fit this one, `packhorse/job/*` for jobs'."""
    return Following(with_query("/events", topic=topic), "jobs", after)


def topology_events(*, after: str = "") -> Following:
    """Follow who joins, who leaves and who leads."""
    return Following("/topology/events", "topology", after)
