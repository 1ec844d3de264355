"""People change jobs while workers claim and end them: no job is lost, doubled or done in vain."""

import threading
from collections import Counter
from collections.abc import Callable

import psycopg

from packhorse.jobs.filters import EVERYTHING, JobFilter, StateGroup
from packhorse.jobs.job import JobState
from packhorse.jobs.ledger import changing, pruning
from packhorse.jobs.ledger.changing import JobChange
from packhorse.jobs.ledger.pruning import HistoryRule
from packhorse.jobs.store.finishing import Ending
from packhorse.jobs.store.given import NewJob
from tests.harness.jobs.handy import HandyWorker
from tests.harness.jobs.stored import bookkeeper, jobs_of

_JOBS = 150
_ROUNDS = 12


def in_parallel(*actions: Callable[[], object]) -> list[BaseException]:
    """Do all at once; return what they raised."""
    raised: list[BaseException] = []

    def guarded(action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_every_job_is_in_one_place_whoever_changes_it(database_url: str) -> None:
    jobs, done = jobs_of(database_url), Counter[int]()
    lost: list[Ending] = []
    jobs.add_jobs([NewJob("a", id=str(n)) for n in range(_JOBS)])

    def work() -> None:
        worker = HandyWorker(database_url, f"i{threading.get_ident()}")
        for _ in range(_ROUNDS):
            for claimed in worker.claim(5):
                ending = worker.finish(claimed)
                if ending.state is JobState.SUCCEEDED:
                    done[claimed.claim.number] += 1
                else:
                    lost.append(ending)

    def repeat(what: JobChange) -> Callable[[], None]:
        return lambda: [jobs.bulk(what, EVERYTHING) for _ in range(_ROUNDS)] and None

    raised = in_parallel(work, work, repeat(JobChange.STOP), repeat(JobChange.RETRY))
    assert (raised, lost) == ([], []), "stopping takes no attempt from its worker"
    with bookkeeper(database_url) as connection:
        places = connection.execute(
            "SELECT number, id FROM jobs.job UNION ALL SELECT number, id FROM jobs.finished"
        ).fetchall()
    assert len(places) == len(set(places)) == _JOBS
    left = {job.number for job in jobs.find(JobFilter(group=StateGroup.ACTIVE)).jobs}
    assert left == set(), "every claim was ended by its worker"
    figures = jobs.statistics().all
    assert figures.succeeded == sum(done.values()), "each end is counted once"


def test_who_removes_and_who_prunes_do_not_wait_for_each_other(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    jobs.add_jobs([NewJob("a") for _ in range(_JOBS)])
    jobs.bulk(JobChange.STOP, EVERYTHING)

    def prune() -> None:
        for _ in range(_ROUNDS):
            pruning.prune(lambda: psycopg.connect(database_url), HistoryRule(max_count=0), batch=10)

    raised = in_parallel(
        prune,
        prune,
        lambda: jobs.bulk(JobChange.REMOVE, EVERYTHING),
        lambda: jobs.bulk(JobChange.RETRY, EVERYTHING),
    )
    assert raised == []
    left = jobs.count(EVERYTHING)
    assert left == jobs.count(JobFilter(group=StateGroup.QUEUED)) + jobs.count(
        JobFilter(group=StateGroup.HISTORY)
    )
    assert all(claimed.job.state is JobState.ACTIVE for claimed in worker.claim(5))


def test_a_finish_and_an_abandonment_have_one_winner(database_url: str) -> None:
    jobs, worker = jobs_of(database_url), HandyWorker(database_url)
    for _ in range(20):
        number = jobs.add_job("a").job.number
        [claimed] = worker.claim()
        states: list[JobState | None] = []
        abandoned: list[set[int]] = []

        def take_away(number: int = number, abandoned: list[set[int]] = abandoned) -> None:
            with bookkeeper(database_url) as connection:
                abandoned.append(changing.change_all(connection, JobChange.ABANDON, [number]))

        raised = in_parallel(lambda: states.append(worker.finish(claimed).state), take_away)  # noqa: B023
        assert raised == []
        if states == [JobState.SUCCEEDED]:
            # Removed after it had finished: then it is forgotten; or passed over at that moment.
            assert jobs.count(JobFilter(group=StateGroup.DROPPED)) == 0
        else:
            assert (states, abandoned) == ([None], [{number}])
            assert jobs.remove(number).state is JobState.DROPPED
