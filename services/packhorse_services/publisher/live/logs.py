"""The three logs that the events of one publisher agent come from."""

from packhorse.messaging.api import Journal
from packhorse.wire.topics import Topics
from packhorse_services.publisher.live.events import (
    EventType,
    distributed_event,
    package_event,
    status_event,
)
from packhorse_services.publisher.live.log import EventLog
from packhorse_services.publisher.live.position import Source


def event_logs(journal: Journal, topics: Topics, agent: str) -> dict[Source, EventLog]:
    """Return them; nothing is read before somebody asks."""
    package, status, event = package_event(agent), status_event(agent), distributed_event(agent)
    return {
        Source.PACKAGE: EventLog(journal, topics.package, package, kind=EventType.PACKAGE),
        Source.STATUS: EventLog(journal, topics.status, status, kind=EventType.STATUS),
        Source.EVENT: EventLog(journal, topics.event, event, kind=EventType.DISTRIBUTED, key=agent),
    }
