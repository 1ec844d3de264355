"""What the jobs service does as jobs itself: it forgets what nobody needs any more.

Each has a schedule, which an operator sees and may change; the rule for history is in the
properties of its schedule.
"""

from datetime import timedelta
from functools import partial

from packhorse.db.transactions import Connect, writing
from packhorse.jobs.consumer import JobContext, Outcome, Result
from packhorse.jobs.consumers import Consumers, live_handled_topics
from packhorse.jobs.events.pruning import prune_events
from packhorse.jobs.job import Job
from packhorse.jobs.ledger.pruning import DEFAULT_RULE, PruneHistory
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.scheduling.definition import JobAction, ScheduleDefinition
from packhorse.jobs.scheduling.forgetting import forget_ended, forget_fire_times
from packhorse.jobs.scheduling.timing import Every
from packhorse.topology.discovery import Discovery
from packhorse_services.jobs.http import request_keys

PRUNE_HISTORY = "packhorse/jobs/prune-history"
PRUNE_EVENTS = "packhorse/events/prune"
FORGET_FIRE_TIMES = "packhorse/schedules/forget-ticks"
FORGET_KEYS = "packhorse/jobs/forget-request-keys"
_BATCH = 1_000

QUEUE = QueueConfiguration(
    name="housekeeping",
    patterns=(PRUNE_HISTORY, PRUNE_EVENTS, FORGET_FIRE_TIMES, FORGET_KEYS),
    type=QueueType.UNORDERED,
    max_parallel=1,
    max_retries=3,
    keep_history=False,
)
"""Its schedules show the last fire times, which is enough; so its jobs are not kept in history."""


def consumers_of(connect: Connect, discovery: Discovery) -> Consumers:
    """Return what does these jobs; `connect` is a pool's `connection`."""
    consumers = Consumers()
    consumers.add(PRUNE_HISTORY, PruneHistory(connect, partial(live_handled_topics, discovery)))
    consumers.add(PRUNE_EVENTS, partial(_prune_events, connect))
    consumers.add(FORGET_FIRE_TIMES, partial(_forget_fire_times, connect))
    consumers.add(FORGET_KEYS, partial(_forget_keys, connect))
    return consumers


def _schedule(
    name: str, period: timedelta, action: JobAction, description: str
) -> ScheduleDefinition:
    return ScheduleDefinition(
        name=name,
        when=Every(period),
        action=action,
        description=description,
        concurrent=False,
    )


SCHEDULES = (
    _schedule(
        "packhorse.prune-history",
        timedelta(hours=1),
        JobAction(
            PRUNE_HISTORY,
            {"max_age_s": DEFAULT_RULE.max_age_s, "max_count": DEFAULT_RULE.max_count},
        ),
        "Forgets jobs that finished long ago, and topics that nothing uses any more",
    ),
    _schedule(
        "packhorse.prune-events",
        timedelta(minutes=5),
        JobAction(PRUNE_EVENTS),
        "Removes events that every instance has had an hour for",
    ),
    _schedule(
        "packhorse.forget-ticks",
        timedelta(hours=1),
        JobAction(FORGET_FIRE_TIMES),
        "Removes fire times of a month ago, and schedules that ended then",
    ),
    _schedule(
        "packhorse.forget-request-keys",
        timedelta(hours=1),
        JobAction(FORGET_KEYS),
        "Forgets Idempotency-Keys of more than a day ago",
    ),
)


def _prune_events(connect: Connect, _job: Job, context: JobContext) -> Result:
    events, more = 0, True
    while more and not context.stop_requested:
        pruned = prune_events(connect)
        events, more = events + pruned.events, pruned.more
    return Result(_outcome(more), f"{events} events removed")


def _forget_keys(connect: Connect, _job: Job, context: JobContext) -> Result:
    forgotten, found = 0, _BATCH
    while found == _BATCH and not context.stop_requested:
        with writing(connect) as connection:
            found = request_keys.forget(connection, request_keys.KEPT_S, _BATCH)
        forgotten += found
    return Result(_outcome(found == _BATCH), f"{forgotten} keys forgotten")


def _forget_fire_times(connect: Connect, _job: Job, context: JobContext) -> Result:
    fire_times = schedules = 0
    found = _BATCH
    while found >= _BATCH and not context.stop_requested:
        with writing(connect) as connection:
            found = forget_fire_times(connection, limit=_BATCH)
            ended = forget_ended(connection, limit=_BATCH)
        fire_times, schedules = fire_times + found, schedules + ended
    return Result(
        _outcome(found >= _BATCH), f"{fire_times} fire times, {schedules} schedules forgotten"
    )


def _outcome(more: bool) -> Outcome:
    """Return FAILED where it was asked to stop: another instance goes on, or this one later."""
    return Outcome.FAILED if more else Outcome.OK
