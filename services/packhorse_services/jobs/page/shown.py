"""What the pages show, as it is in the database at one moment; bounded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from psycopg import Connection

from packhorse.errors import Permanent
from packhorse.jobs.consumers import live_handled_topics
from packhorse.jobs.filters import JobFilter
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.ledger import finding
from packhorse.jobs.ledger.changing import JobChange, allowed_states
from packhorse.jobs.ledger.figures import JobFigures, read_statistics
from packhorse.jobs.ledger.pages import START, HistoryStart, JobPage
from packhorse.jobs.ledger.waiting import Unconsumed, unconsumed
from packhorse.jobs.live_consumers import is_consumed
from packhorse.jobs.scheduling.definition import FireTime, JobAction, Schedule
from packhorse.jobs.scheduling.store import list_fire_times, list_schedules
from packhorse.jobs.scheduling.timing import Cron, Every, period_text, times_after
from packhorse.jobs.store.queues import JobQueue, get_queue, read_queues
from packhorse.topology.discovery import Discovery
from packhorse_services.jobs.page.search import Search

_PAGE = 50
_MOST_SCHEDULES = 200
_EXAMPLES = 5
_COMING = 3
"""How many of the next fire times of a schedule are shown."""


@dataclass(frozen=True, slots=True)
class ShownQueue:
    """A row of the queues."""

    queue: JobQueue
    figures: JobFigures


@dataclass(frozen=True, slots=True)
class ShownSchedule:
    """A row of the schedules."""

    schedule: Schedule
    when: str
    gives: str
    coming: Sequence[datetime]
    last: FireTime | None


@dataclass(frozen=True, slots=True)
class JobsPageContent:
    """The page of jobs; `wrong` says what of the search is no filter."""

    jobs: Sequence[Job]
    after: str
    wrong: str
    may_retry: bool
    may_stop: bool
    lonely: Sequence[Unconsumed]
    queues: Sequence[ShownQueue]
    schedules: Sequence[ShownSchedule]
    more_schedules: bool


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job, and what it waits for."""

    job: Job
    lonely: bool
    suspended: bool


def content(connection: Connection, discovery: Discovery, search: Search) -> JobsPageContent:
    """Gather the page of jobs."""
    found, states, wrong = JobPage((), None), set[JobState](), ""
    try:
        wanted = search.filter()
        with connection.transaction():  # a search that takes too long ends no more than itself
            found = finding.find(connection, wanted, after=search.after or None, limit=_PAGE)
        states = set(wanted.group.states)
    except Permanent as error:
        wrong = str(error)
    schedules = list_schedules(connection, limit=_MOST_SCHEDULES + 1)
    live = live_handled_topics(discovery)
    return JobsPageContent(
        jobs=found.jobs,
        after=found.after or "",
        wrong=wrong,
        may_retry=bool(states & set(allowed_states(JobChange.RETRY))),
        may_stop=bool(states & set(allowed_states(JobChange.STOP))),
        lonely=() if live is None else unconsumed(connection, live),
        queues=_queues(connection),
        schedules=[_schedule(connection, one) for one in schedules[:_MOST_SCHEDULES]],
        more_schedules=len(schedules) > _MOST_SCHEDULES,
    )


def shown_job(connection: Connection, discovery: Discovery, number: int) -> ShownJob:
    """Gather the page of one job. Raises `UnknownJob`."""
    job = finding.get(connection, number)
    if job.state is not JobState.QUEUED:
        return ShownJob(job, lonely=False, suspended=False)
    live = live_handled_topics(discovery)
    lonely = live is not None and not is_consumed(job.topic, job.only_on, live)
    return ShownJob(job, lonely, get_queue(connection, job.queue).suspended)


def examples(connection: Connection, wanted: JobFilter, what: JobChange) -> list[Job]:
    """Return the first of the jobs that a change of all would change."""
    states = [state for state in wanted.group.states if state in allowed_states(what)]
    if what is JobChange.RETRY:
        return finding.newest(connection, wanted, states, HistoryStart(), _EXAMPLES)
    return finding.oldest(connection, wanted, states, START, _EXAMPLES)


def _queues(connection: Connection) -> list[ShownQueue]:
    counted = read_statistics(connection).queues
    return [ShownQueue(one, counted.get(one.name, JobFigures())) for one in read_queues(connection)]


def _schedule(connection: Connection, schedule: Schedule) -> ShownSchedule:
    action = schedule.definition.action
    kind = "job" if isinstance(action, JobAction) else "event"
    return ShownSchedule(
        schedule,
        when=_when(schedule),
        gives=f"{kind} {action.topic}",
        coming=[*islice(_coming(schedule), _shown_times(schedule))],
        last=next(iter(list_fire_times(connection, schedule.name, limit=1)), None),
    )


def _when(schedule: Schedule) -> str:
    when = schedule.definition.when
    if isinstance(when, Cron):
        return f"{when.expression} ({when.time_zone})"
    return f"every {period_text(when.period)}" if isinstance(when, Every) else "once"


def _shown_times(schedule: Schedule) -> int:
    return _COMING if schedule.times_left is None else min(_COMING, schedule.times_left)


def _coming(schedule: Schedule) -> Iterator[datetime]:
    fire_time, when = schedule.next_fire_time, schedule.definition.when
    if fire_time is None:
        return
    yield fire_time
    if isinstance(when, Cron):
        yield from times_after(when, fire_time)
    elif isinstance(when, Every):
        yield from _every(fire_time, when.period)


def _every(fire_time: datetime, period: timedelta) -> Iterator[datetime]:
    while True:
        fire_time += period
        yield fire_time
