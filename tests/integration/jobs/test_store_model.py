"""The store of jobs does what its model says; and the machine that says so notices broken ones."""

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg import Connection

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.consumer import Outcome, Result
from packhorse.jobs.job import JobState
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.store import (
    adding,
    claim_statements,
    claims,
    ending_rows,
    finishing,
    leases,
    rescue,
)
from packhorse.jobs.store.adding import add_job, requeue_finished
from packhorse.jobs.store.claims import Claim, ClaimRequest
from packhorse.jobs.store.endings import EndDecision
from packhorse.jobs.store.finishing import Ended
from packhorse.jobs.store.given import NewJob
from packhorse.jobs.store.queues import declare_queue, learn_topics
from tests.harness.depth import examples
from tests.harness.postgres import Databases
from tests.integration.jobs.store_model import MOST_RETRIES, ORDERED, UNORDERED, Model

T = TypeVar("T")
WORKERS = ("w1", "w2", "w3")
QUEUES = (
    QueueConfiguration(
        "free", ("free/*",), type=QueueType.UNORDERED, max_retries=MOST_RETRIES, retry_delay_s=0
    ),
    QueueConfiguration("line", ("line/*",), max_retries=MOST_RETRIES, retry_delay_s=0),
)


def prepare(url: str) -> None:
    """Declare the queues."""
    with psycopg.connect(url) as connection, connection.transaction():
        act_as(connection, BOOKKEEPER)
        for queue in QUEUES:
            declare_queue(connection, queue)
        learn_topics(connection, [*UNORDERED, *ORDERED])


class StoreMachine(RuleBasedStateMachine):
    """One step is one transaction of one worker, or of somebody who gives jobs.

    Leases end when a step says so, by the row: nothing waits for a clock.
    """

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.connection = psycopg.connect(self.url)
        self.connection.execute("TRUNCATE jobs.job, jobs.finished, jobs.worker, jobs.event")
        self.connection.commit()
        self.model, self.serial = Model(), 0
        self.runs = {worker: leases.WorkerRun.begin(worker) for worker in WORKERS}
        self.claims: list[tuple[Claim, tuple[str, int]]] = []

    def teardown(self) -> None:
        self.connection.close()

    def do(self, act: Callable[..., T], *given: Any, **named: Any) -> T:
        """Call a function in a transaction of its own."""
        with self.connection.transaction():
            act_as(self.connection, BOOKKEEPER)
            return act(self.connection, *given, **named)

    @initialize()
    def all_live(self) -> None:
        for worker in WORKERS:
            self.renew(worker)

    @rule(
        topic=st.sampled_from(UNORDERED + ORDERED),
        id_=st.sampled_from((None, "a", "b")),
        application=st.sampled_from(("x", "y", "")),
        priority=st.integers(0, 2),
    )
    def add(self, topic: str, id_: str | None, application: str, priority: int) -> None:
        wanted = self.model.add(topic, id_, application, priority)
        added = self.do(add_job, application, NewJob(topic, id=id_, priority=priority))
        assert added.verdict is wanted
        if wanted.name == "ADDED":
            assert added.job.number not in self.model.jobs
            self.model.enter(added.job.number, (topic, id_, application, priority))
        else:
            assert added.job.number == self.model.find(topic, id_)

    @rule(worker=st.sampled_from(WORKERS))
    def renew(self, worker: str) -> None:
        self.do(leases.renew, self.runs[worker])
        held = self.do(leases.holdings, self.runs[worker])
        self.model.live.add(worker)
        assert {one.number for one in held} == self.model.held_by(worker)
        assert all(one.stop_requested is self.model.jobs[one.number].stop for one in held)

    @rule(worker=st.sampled_from(WORKERS))
    def lose_lease(self, worker: str) -> None:
        self.do(_end_lease, self.runs[worker])
        self.model.live.discard(worker)

    @rule(worker=st.sampled_from(WORKERS), places=st.integers(1, 3))
    def claim(self, worker: str, places: int) -> None:
        self.serial += 1
        free, line = self.model.claim(worker, places, self.serial)
        requests = [
            ClaimRequest("free", UNORDERED, places, type=QueueType.UNORDERED),
            ClaimRequest("line", ORDERED, 1, type=QueueType.ORDERED),
        ]
        claimed = self.do(claims.claim, self.runs[worker], requests)
        assert [one.job.number for one in claimed if one.job.queue == "free"] == free
        assert [one.job.number for one in claimed if one.job.queue == "line"] == line
        for one in claimed:
            job = self.model.jobs[one.job.number]
            assert (one.job.attempts, one.job.retry) == (job.attempts, job.retry)
            self.claims.append((one.claim, (worker, self.serial)))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), outcome=st.sampled_from((Outcome.OK, Outcome.FAILED, Outcome.CANCEL)))
    def finish(self, data: st.DataObject, outcome: Outcome) -> None:
        claim, holder = data.draw(st.sampled_from(self.claims))
        wanted = self.model.end(claim.number, holder, outcome)
        [ending] = self.do(finishing.finish, [Ended(claim, Result(outcome))])
        assert ending.state is wanted

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        claim, holder = data.draw(st.sampled_from(self.claims))
        wanted = self.model.release(claim.number, holder)
        [ending] = self.do(finishing.release, [claim], "leaves")
        assert ending.state is wanted

    @rule()
    def rescue(self) -> None:
        wanted = self.model.rescue()
        rescued = self.do(rescue.rescue)
        assert sorted(one.held.number for one in rescued) == sorted(wanted)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.model.jobs)))
        requested = self.do(finishing.request_stop, [number])
        assert requested == ([number] if self.model.stop(number) else [])

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.model.jobs)))
        requeued = [job.number for job in self.do(requeue_finished, [number])]
        assert requeued == ([number] if self.model.requeue(number) else [])

    @invariant()
    def is_as_the_model(self) -> None:
        unfinished = {
            number: (job.state.value, job.attempts, job.retry)
            for number, job in self.model.jobs.items()
            if not job.state.final
        }
        finished = {n: j.state.value for n, j in self.model.jobs.items() if j.state.final}
        rows = self.connection.execute("SELECT number, state, attempts, retry FROM jobs.job")
        assert {number: tuple(rest) for number, *rest in rows} == unfinished
        history = self.connection.execute("SELECT number, state FROM jobs.finished")
        assert dict(history.fetchall()) == finished
        self.connection.rollback()

    @invariant()
    def a_line_has_one_at_a_time(self) -> None:
        states = [job.state for job in self.model.jobs.values() if job.topic in ORDERED]
        assert states.count(JobState.ACTIVE) <= 1


def _end_lease(connection: Connection, run: leases.WorkerRun) -> None:
    connection.execute(
        "UPDATE jobs.worker SET lease_until = '-infinity' WHERE runtime_id = %s", (run.runtime_id,)
    )


_THOROUGH = settings(
    max_examples=examples(40),
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
_UNTIL_FOUND = settings(
    _THOROUGH, max_examples=300, phases=(Phase.generate,), report_multiple_bugs=False
)


@pytest.fixture(scope="module")
def machine(databases: Databases) -> type[StoreMachine]:
    prepared = databases.new()
    prepare(prepared)

    class Machine(StoreMachine):
        url = prepared

    return Machine


def test_the_store_does_what_its_model_says(machine: type[StoreMachine]) -> None:
    run_state_machine_as_test(machine, settings=_THOROUGH)


def _changed(module: Any, names: str, old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    def change(patch: pytest.MonkeyPatch) -> None:
        for name in names.split():
            text = getattr(module, name)
            assert old in text
            patch.setattr(module, name, text.replace(old, new))

    return change


def _no_history(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(adding, "finished_of", lambda *_: [])


def _never_flagged(patch: pytest.MonkeyPatch) -> None:
    columns = ending_rows._queued_columns

    def unflagged(decisions: list[EndDecision]) -> dict[str, Any]:
        return {**columns(decisions), "retry": [False] * len(decisions)}

    patch.setattr(ending_rows, "_queued_columns", unflagged)


BROKEN = {
    "an end without epoch": _changed(ending_rows, "_LOCK_CLAIMED", "AND j.epoch = c.epoch", ""),
    "a claim without a lease": _changed(
        claim_statements, "HEADS CLAIM_HEADS", "w.lease_until > clock_timestamp()", "true"
    ),
    "rescue of those that live": _changed(
        ending_rows, "_LOCK_LOST", "w.lease_until > clock_timestamp()", "false"
    ),
    "a line with two at a time": _changed(
        claim_statements, "HEADS CLAIM_HEADS", "j.state = 'ACTIVE'", "false"
    ),
    "attempts that are forgotten": _changed(
        ending_rows, "_REQUEUE", "attempts = d.attempts", "attempts = 0"
    ),
    "ids that history does not have": _no_history,
    "a take-over without the flag": _never_flagged,
}


@pytest.mark.proof
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_store_is_noticed(
    machine: type[StoreMachine], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    BROKEN[broken](monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=_UNTIL_FOUND)
