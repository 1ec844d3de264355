"""Programs with consumers, in this process, on a real database."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from packhorse.jobs.consumer import Consumer
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.declaring import Declared
from packhorse.jobs.host import JobsHost, open_jobs
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.queue import QueueConfiguration
from packhorse.jobs.work.heartbeat import WorkerSettings
from packhorse.topology.own_cluster import OwnCluster
from tests.harness.waiting import eventually

FAST = WorkerSettings(
    lease_s=120.0, renewal_s=10.0, poll_s=0.1, rescue_s=0.2, places=16, usual_parallel=4
)
FINAL_S = 120.0


@contextmanager
def hosted(
    url: str,
    consumers: Mapping[str, Consumer] | Consumers,
    *,
    queues: Sequence[QueueConfiguration] = (),
    settings: WorkerSettings = FAST,
    cluster: OwnCluster | None = None,
    stop_s: float = 120.0,
) -> Iterator[JobsHost]:
    """Run a host with these consumers by pattern."""
    host = open_jobs(
        url, cluster, consumers=registered(consumers), declared=Declared(queues), settings=settings
    )
    host.start()
    try:
        if queues:
            names = {queue.name for queue in queues}
            eventually(
                lambda: names <= {queue.name for queue in host.jobs.queues()}, what="its queues"
            )
        yield host
    finally:
        host.stop(stop_s)
    assert host.failure() is None


def registered(consumers: Mapping[str, Consumer] | Consumers) -> Consumers:
    if isinstance(consumers, Consumers):
        return consumers
    made = Consumers()
    for pattern, consumer in consumers.items():
        made.add(pattern, consumer)
    return made


def until(host: JobsHost, number: int, state: JobState, *, timeout: float = FINAL_S) -> Job:
    """Wait until a job is in a state, and return it."""

    def there() -> Job:
        job = host.jobs.get(number)
        assert job.state is state, f"{job.state}: {job.result_message}"
        return job

    return eventually(there, timeout=timeout, what=f"job {number} is {state}")
