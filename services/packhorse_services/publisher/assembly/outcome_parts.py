"""Puts together what keeps an agent's outcomes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from psycopg import Connection

from packhorse.db.connect import connect
from packhorse.db.pool import Lender
from packhorse.db.transactions import writing
from packhorse.messaging.api import Journal
from packhorse.runtime.lifecycle import Component
from packhorse.topology.own_cluster import OwnCluster
from packhorse.wire.topics import Topics
from packhorse_services.publisher.assembly.maintenance import MaintenanceTask
from packhorse_services.publisher.commands.command_rows import note_status
from packhorse_services.publisher.outcomes.event_log import (
    DatabaseSnapshots,
    EventAppender,
    snapshot_events,
)
from packhorse_services.publisher.outcomes.event_publisher import EventPublisher
from packhorse_services.publisher.outcomes.outcome_loop import OutcomeLoop
from packhorse_services.publisher.outcomes.packages_in_range import PackageSource
from packhorse_services.publisher.outcomes.progress import RecorderProgress
from packhorse_services.publisher.outcomes.recorder import Recorder
from packhorse_services.publisher.outcomes.recorder_lock import RecorderLock
from packhorse_services.publisher.outcomes.status_watermark import StatusWatermark
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.settings import Settings

_SNAPSHOT_EVERY = timedelta(hours=1)
_MOST_EPOCHS = 100_000


def leader_task_of(agent: str) -> str:
    """Return the leader task of recording an agent's outcomes and publishing its events."""
    return f"notifier.{agent}"


@dataclass(frozen=True)
class OutcomeParts:
    """What is started and stopped, and what says up to where outcomes are certain."""

    watermark: StatusWatermark
    components: Sequence[Component]
    hint: Callable[[], None]
    """Is told that there are statuses in the journal."""
    check_events: Callable[[], None]
    """Raises what keeps events from being published until an operator mends it."""
    snapshot_task: MaintenanceTask


def outcome_parts(
    settings: Settings,
    queues: Queues,
    journal: Journal,
    topics: Topics,
    pool: Lender,
    cluster: OwnCluster | None = None,
) -> OutcomeParts:
    """Return the parts; nothing connects before they are started."""
    agent, progress = queues.agent, RecorderProgress()
    loop = OutcomeLoop(
        RecorderLock(agent, partial(_session, settings, cluster)),
        Recorder(journal, topics, agent, note_status),
        _event_publisher(queues, journal, topics, pool),
        queues,
        progress=progress,
        preferred=partial(_preferred, leader_task_of(agent), cluster),
    )
    watermark = StatusWatermark(
        journal, topics.status, pool, queues, progress=progress, wake_recorder=loop.kick
    )
    queues.feed.on_distrust = watermark.distrust
    snapshot = MaintenanceTask(
        "snapshot-deduplication",
        _SNAPSHOT_EVERY,
        "Keeps which events were published, so that a start reads little of the event topic",
        partial(snapshot_events, journal, topics.event, agent, DatabaseSnapshots(pool)),
        agent,
    )
    return OutcomeParts(watermark, (loop, watermark), loop.hint, loop.check_events, snapshot)


def _event_publisher(
    queues: Queues, journal: Journal, topics: Topics, pool: Lender
) -> EventPublisher:
    agent = queues.agent
    events = EventAppender(
        journal, topics.event, agent, DatabaseSnapshots(pool), partial(next_epoch, pool)
    )
    packages = PackageSource(journal, topics.package, queues.feed.cache)
    return EventPublisher(journal, topics, agent, packages=packages, log=events, clock=queues.clock)


def _session(settings: Settings, cluster: OwnCluster | None) -> Connection:
    """Connect for the lock, which ends when this run of the program is declared dead."""
    url = settings.database_url.get_secret_value()
    connection = connect(url, f"publisher-outcomes-{settings.agent}", autocommit=True)
    if cluster is not None:
        cluster.tie_session(connection)
    return connection


def _preferred(leader_task: str, cluster: OwnCluster | None) -> str:
    holder = None if cluster is None else cluster.holder(leader_task)
    return "" if holder is None or holder.is_local else holder.id


def next_epoch(pool: Lender, above: int = 0) -> int:
    """Return an epoch that no producer has had, above `above` unless that is very far away.

    The sequence is not set, for who takes an epoch at the same time would get the same one.
    """
    with writing(pool.connection) as connection:
        row: Any = connection.execute(
            """
            SELECT max(nextval('bookkeeping.producer_epoch')) FROM generate_series(1, (
                SELECT greatest(1, least(%s - last_value + 1, %s)) FROM bookkeeping.producer_epoch))
            """,
            (above, _MOST_EPOCHS),
        ).fetchone()
    return int(row[0])
